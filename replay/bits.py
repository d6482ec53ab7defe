"""Tensors as the bits they are made of: equality, and the way to NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return plain contiguous content: real numbers, conjugation and negation resolved."""
    content = tensor.detach()
    if content.layout != torch.strided:
        content = content.to_dense()
    if content.is_quantized:
        content = content.int_repr()
    if content.dtype.is_complex:
        content = torch.view_as_real(content.resolve_conj())
    return content.resolve_neg().contiguous()


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Are type, shape and every bit equal? NaN equals NaN of the same bits only."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.device != right.device:
        right = right.to(left.device)
    one, other = dense(left), dense(right)
    word = _WORDS[one.element_size()]
    if one.dim() == 0:
        one, other = one.reshape(1), other.reshape(1)
    return torch.equal(one.view(word), other.view(word))


def to_words(tensor: torch.Tensor) -> NDArray[np.unsignedinteger]:
    """Return the raw bits as unsigned integers of the element size, flat, on the CPU."""
    content = dense(tensor).cpu().reshape(-1)
    size = content.element_size()
    words: NDArray[np.unsignedinteger] = content.view(_WORDS[size]).numpy()
    return words.view(_UNSIGNED[size])


def word_type(tensor: torch.Tensor) -> str:
    """Name the type that `to_words` gives the bits of: the part's for complex numbers."""
    dtype = tensor.int_repr().dtype if tensor.is_quantized else tensor.dtype
    return str(dtype.to_real() if dtype.is_complex else dtype).removeprefix("torch.")
