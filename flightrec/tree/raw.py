"""Bytes of tensors: out of one, back into one, their content hash, and copies of extents."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from flightrec.errors import CannotRebuildError, CorruptIncidentError
from flightrec.tree.parts import components, is_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

    from flightrec.types import TensorRef

DTYPES: dict[str, torch.dtype] = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}
"""Every dtype of this torch by its name without `torch.`; aliases such as `half` are left out."""

MAX_DIMENSIONS = 64
"""Most dimensions a tensor from an incident may have, as in numpy and torch."""


class Quiet:
    """Hide our own operators from the modes and transforms that the user's program has on.

    Default devices, FLOP counters, debug modes and functorch would otherwise see or change them.
    A class, since a generator would cost as much as a copy.
    """

    __slots__ = ("_functions", "_inner")

    def __enter__(self) -> None:
        """Switch overrides and modes off."""
        self._functions = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._inner: list[AbstractContextManager[Any]] = []
        if torch._C._len_torch_dispatch_stack():
            self._inner.append(_disable_current_modes())
        if torch._C._functorch.maybe_current_level() is not None:
            self._inner.append(temporarily_clear_interpreter_stack())
        for context in self._inner:
            context.__enter__()

    def __exit__(self, *fault: Any) -> None:
        """Switch them on again."""
        for context in reversed(self._inner):
            context.__exit__(*fault)
        self._functions.__exit__(*fault)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name without `torch.`, as in `TensorRef.dtype`."""
    return str(dtype).removeprefix("torch.")


def storage_bytes(tensor: torch.Tensor, start: int, length: int) -> torch.Tensor:
    """Return `length` bytes of the storage under `tensor` from byte `start`, as uint8, shared."""
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage(), start, (length,), (1,))


def first_element(tensor: torch.Tensor) -> int:
    """Return the storage offset, in elements."""
    return int(tensor.storage_offset())


def extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """Return how many elements lie from the first to the last that a tensor reads; 0 if empty."""
    if 0 in size:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def raw_bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    """Return the bytes of the contiguous tensor in its own dtype, shape (nbytes,), on the host.

    May share memory with a contiguous CPU tensor: copy what has to last. Conjugation and
    negation are resolved. Raises `TypeError` for a tensor that is not plain (see `is_plain`).
    """
    if not is_plain(tensor):
        raise TypeError(f"only a strided tensor has raw bytes, got {type(tensor).__name__}")
    with Quiet():
        plain = tensor.detach()
        if plain.is_meta or plain.numel() == 0:
            return torch.empty(0, dtype=torch.uint8, device="cpu").numpy()
        plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
        start = first_element(plain) * plain.itemsize
        array: NDArray[np.uint8] = storage_bytes(plain, start, plain.nbytes).numpy()
        return array


def tensor_hash(tensor: torch.Tensor) -> str:
    """Return the content hash used everywhere: blake2b, 16 bytes, hex, over the raw bytes.

    Sparse, nested, quantized and wrapped tensors hash their components in order. Meta tensors
    have no bytes, and so the hash of none.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in components(tensor):
        digest.update(raw_bytes(part).data)
    return digest.hexdigest()


def to_storage(data: NDArray[np.uint8], device: torch.device | str = "cpu") -> torch.UntypedStorage:
    """Copy bytes into a storage of torch's own, aligned as torch aligns, on `device`."""
    with Quiet():
        target = torch.empty(len(data), dtype=torch.uint8, device="cpu")
        target.numpy()[:] = data
        return target.to(device).untyped_storage()


def from_raw(
    storage: torch.UntypedStorage | None,
    dtype: str,
    offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Return a tensor over `storage`; tensors made over one storage share it.

    `offset` and `stride` count elements. Without a storage the tensor has no elements, or is on
    the device `meta`. Raises `CorruptIncidentError` where it would reach outside the storage.
    """
    kind = DTYPES.get(dtype)
    if kind is None or dtype.startswith(("qint", "quint")):
        raise CorruptIncidentError(f"no such dtype in torch {torch.__version__}: {dtype!r}")
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or len(size) > MAX_DIMENSIONS or min(numbers) < 0:
        raise CorruptIncidentError(f"impossible tensor: size {size}, stride {stride}, at {offset}")
    if math.prod(size) >= 2**63 or max(numbers) >= 2**63:
        raise CorruptIncidentError(f"tensor too large: size {size}, stride {stride}")
    with Quiet():
        if storage is None:
            if 0 not in size and str(device) != "meta":
                raise CorruptIncidentError(f"tensor of size {size} without a storage")
            return torch.empty_strided(tuple(size), tuple(stride), dtype=kind, device=device)
        end = (offset + extent(size, stride)) * kind.itemsize
        if end > storage.nbytes():
            raise CorruptIncidentError(
                f"tensor ends at byte {end} of a storage of {storage.nbytes()}"
            )
        empty = torch.empty(0, dtype=kind, device=storage.device)
        return empty.set_(storage, offset, tuple(size), tuple(stride))


class TensorLoader:
    """Gives tensor `i` of an incident; one loader shares storages and objects, two never do.

    A fresh loader gives fresh copies, so that a replay that writes into them does no harm.
    Meta tensors stay on `meta`; all others come to `device`.
    """

    def __init__(
        self,
        refs: Sequence[TensorRef],
        data: Callable[[int], NDArray[np.uint8]],
        device: torch.device | str = "cpu",
    ) -> None:
        """Read bytes of storage `n` by `data(n)` when a tensor on it is first asked for."""
        self._refs = refs
        self._data = data
        self._device = device
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._objects: dict[int, torch.Tensor] = {}

    def __call__(self, index: int) -> torch.Tensor:
        """Return the tensor.

        Raises `CorruptIncidentError` if there is none such, `CannotRebuildError` if its bytes
        were lost before they could be written.
        """
        if not 0 <= index < len(self._refs):
            raise CorruptIncidentError(f"no tensor {index} among {len(self._refs)}")
        ref = self._refs[index]
        made = self._objects.get(ref.object)
        if made is None:
            made = self._objects[ref.object] = self._make(ref)
        return made

    def _make(self, ref: TensorRef) -> torch.Tensor:
        storage: Any = None
        device = "meta" if ref.device == "meta" else self._device
        if ref.storage < 0 and not ref.reliable:
            raise CannotRebuildError(f"{ref.name or 'a tensor'} was gone before it was written")
        if ref.storage >= 0:
            storage = self._storages.get(ref.storage)
            if storage is None:
                storage = to_storage(self._data(ref.storage), self._device)
                self._storages[ref.storage] = storage
        made = from_raw(storage, ref.dtype, ref.offset, ref.size, ref.stride, device)
        if ref.requires_grad and (made.is_floating_point() or made.is_complex()):
            made.requires_grad_()
        return made
