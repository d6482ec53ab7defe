"""Which tensors are plain (strided, real memory), and what the others are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

if TYPE_CHECKING:
    from collections.abc import Iterator

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor

COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
"""Names of the two index tensors of each compressed sparse layout."""


def is_plain(tensor: torch.Tensor) -> bool:
    """Is it strided memory of its own, so that dtype, offset, size and stride say all?

    True for parameters and for subclasses that only add methods; False for sparse, nested,
    quantized, wrapping subclasses, and inside functorch transforms.
    """
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return _is_strided(tensor)
    if not _only_adds_methods(kind):
        return False
    with torch._C.DisableTorchFunction():
        return _is_strided(tensor)


def _is_strided(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and not _is_wrapped(tensor)
    )


def _only_adds_methods(kind: type[torch.Tensor]) -> bool:
    return kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ and not hasattr(
        kind, "__tensor_flatten__"
    )


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Is it a subclass that holds other tensors and can be taken apart by its own methods?"""
    return is_traceable_wrapper_subclass(tensor)


def why_opaque(tensor: torch.Tensor) -> str | None:
    """Say why a tensor can be neither copied nor taken apart, or None where it can be."""
    if _is_wrapped(tensor):
        return "a tensor inside a functorch transform has no memory of its own"
    if is_plain(tensor) or is_wrapper(tensor):
        return None
    if not _only_adds_methods(type(tensor)):
        return "a tensor subclass with __torch_dispatch__ but without __tensor_flatten__"
    if tensor.layout not in (torch.strided, torch.sparse_coo, *COMPRESSED):
        return f"layout {tensor.layout}"
    if tensor.is_quantized and tensor.dtype not in (torch.qint8, torch.quint8, torch.qint32):
        return f"packed quantized dtype {tensor.dtype}"
    return None


def parts(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the tensors that one which is not plain is made of, by name, detached.

    Quantized: values, and scales and zero points per channel. Sparse: indices and values.
    Nested: values and offsets, or values, sizes, strides and offsets. Wrapper subclasses: what
    `__tensor_flatten__` names.
    """
    with torch.no_grad():
        if tensor.layout is torch.jagged:
            return _jagged(tensor)
        if is_wrapper(tensor):
            names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
            return {name: getattr(tensor, name) for name in names}
        if tensor.is_nested:
            return {
                "values": tensor.values().detach(),
                "sizes": tensor._nested_tensor_size(),
                "strides": tensor._nested_tensor_strides(),
                "offsets": tensor._nested_tensor_storage_offsets(),
            }
        if tensor.is_quantized:
            return _quantized(tensor)
        bare = tensor.detach()
        if tensor.layout is torch.sparse_coo:
            return {"indices": bare._indices(), "values": bare._values()}
        first, second = COMPRESSED[tensor.layout]
        return {
            "compressed": getattr(bare, first)(),
            "plain": getattr(bare, second)(),
            "values": bare.values(),
        }


def _jagged(tensor: Any) -> dict[str, torch.Tensor]:
    found = {"values": tensor._values.detach(), "offsets": tensor._offsets}
    if tensor._lengths is not None:
        found["lengths"] = tensor._lengths
    return found


def _quantized(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    found = {"values": tensor.int_repr()}
    if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        found["scales"] = tensor.q_per_channel_scales()
        found["zero_points"] = tensor.q_per_channel_zero_points()
    return found


def components(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the plain tensors that hold all of its bytes: itself, or its parts, recursively.

    Raises `TypeError` for one that is opaque (see `why_opaque`).
    """
    if is_plain(tensor):
        yield tensor
        return
    why = why_opaque(tensor)
    if why is not None:
        raise TypeError(f"its bytes cannot be read: {why}")
    for part in parts(tensor).values():
        yield from components(part)
