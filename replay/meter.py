"""Measure tensors with one cheap reduction each, and tell storages apart without keeping them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from replay.oplog import Flags, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FLUSH = 512
"""Measurements that may wait; one transfer from the device then brings all of them."""

REDUCIBLE = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
"""Types that `aminmax` takes; the others are converted first."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Geometry(NamedTuple):
    """How a tensor reads its storage."""

    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class _Known(NamedTuple):
    """What is known about a tensor of one geometry since its storage was last written."""

    slot: int
    """-1 where it was not measured yet."""

    maker: int


class Meter:
    """Numbers storages, measures values once per write, and remembers which operator made what.

    No tensor is kept: a weak reference holds the small head of a storage, so that its address
    is not given to another one, while its bytes are freed as usual.
    """

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.flags: list[Flags | None] = [None]
        self.unmeasured = 0
        """Tensors of kinds that no reduction was found for."""

        self._numbers: dict[int, int] = {}
        self._heads: list[StorageWeakRef] = []
        self._known: dict[int, dict[_Geometry, _Known]] = defaultdict(dict)
        self._last: dict[int, int] = {}
        self._pending: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    # -- identity ---------------------------------------------------------------------------

    def storage(self, tensor: torch.Tensor) -> int:
        """Return the number of the storage of `tensor`; views have that of their base."""
        if type(tensor) not in _PLAIN and hasattr(tensor, "__tensor_flatten__"):
            names, _ = tensor.__tensor_flatten__()
            return self.storage(getattr(tensor, names[0]))
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # sparse: its values stand for it
            return self.storage(tensor._values() if tensor.is_sparse else tensor.values())
        address: int = storage._cdata
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = len(self._heads)
            self._heads.append(StorageWeakRef(storage))  # type: ignore[no-untyped-call]  # torch's
        return number

    def span(self, tensor: torch.Tensor) -> Span:
        """Return the stretch of storage that `tensor` reads, measured."""
        number, geometry, start, stop = self._locate(tensor)
        known = self._known[number].get(geometry)
        if known is None:
            known = _Known(-1, self._last.get(number, -1))
        if known.slot < 0:
            known = self._known[number][geometry] = _Known(self._measure(tensor), known.maker)
        return Span(number, start, stop, known.slot, known.maker)

    def _locate(self, tensor: torch.Tensor) -> tuple[int, _Geometry, int, int]:
        number = self.storage(tensor)
        if tensor.layout is not torch.strided or tensor.is_nested:
            return number, _Geometry(0, (), (), tensor.dtype), 0, 1
        size, stride = tuple(tensor.size()), tensor.stride()
        offset = int(tensor.storage_offset())
        geometry = _Geometry(offset, size, stride, tensor.dtype)
        width = tensor.element_size()
        used = tensor.numel()
        if used and not tensor.is_contiguous():
            steps = zip(size, stride, strict=True)
            used = 1 + sum([(length - 1) * step for length, step in steps])
        return number, geometry, offset * width, (offset + used) * width

    # -- what an operator did ---------------------------------------------------------------

    def wrote(self, tensor: torch.Tensor, op: int) -> Span:
        """Note that `op` made or changed `tensor`, and measure it."""
        number, geometry, start, stop = self._locate(tensor)
        slot = self._measure(tensor)
        self._known[number] = {geometry: _Known(slot, op)}
        self._last[number] = op
        return Span(number, start, stop, slot, op)

    def left_unwritten(self, tensor: torch.Tensor, op: int) -> Span:
        """Note that `op` returned memory whose content means nothing yet."""
        number, geometry, start, stop = self._locate(tensor)
        self._known[number] = {geometry: _Known(-1, op)}
        self._last[number] = op
        return Span(number, start, stop, 0, op)

    def viewed(self, base: torch.Tensor, span: Span, view: torch.Tensor, op: int) -> None:
        """Note that `op` returned a view; one of all elements needs no measurement.

        `span` is where `base` was read.
        """
        number, geometry, _, _ = self._locate(view)
        whole = view.numel() >= base.numel() and view.dtype == base.dtype
        self._known[number][geometry] = _Known(span.slot if whole else -1, op)

    # -- values -----------------------------------------------------------------------------

    def _measure(self, tensor: torch.Tensor) -> int:
        """Queue one reduction over `tensor`; return the slot of `flags` it will fill."""
        plain = type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_meta
        if plain and tensor.dtype in REDUCIBLE and not tensor.is_nested:
            if not (numel := tensor.numel()):
                return 0
            low, high = torch.aminmax(tensor)
        else:
            found = self._measure_parts(tensor)
            if found is None:
                return 0
            low, high, numel = found
        slot = len(self.flags)
        self.flags.append(Flags(False, False, False, 0.0, numel))  # noqa: FBT003
        self._pending.append((slot, low, high))
        if len(self._pending) >= FLUSH:
            self.settle()
        return slot

    def _measure_parts(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int] | None:
        """Reduce a tensor of another kind by its parts; one that cannot be read is counted."""
        try:
            parts = list(_parts(tensor))
            found = [torch.aminmax(part) for part in parts]
        except (RuntimeError, NotImplementedError, TypeError):
            self.unmeasured += 1
            return None
        if not found:
            return None
        if len(found) == 1:
            return *found[0], parts[0].numel()
        low = torch.stack([each.min.double() for each in found]).amin()
        high = torch.stack([each.max.double() for each in found]).amax()
        return low, high, sum(part.numel() for part in parts)

    def settle(self) -> None:
        """Fill in what the queued reductions found."""
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, Any, Any]]]
        groups = defaultdict(list)
        for slot, low, high in self._pending:
            groups[low.device, low.dtype].append((slot, low, high))
        self._pending = []
        for group in groups.values():
            slots, lows, highs = zip(*group, strict=True)
            values = torch.stack([torch.stack(lows), torch.stack(highs)]).tolist()
            for slot, low, high in zip(slots, *values, strict=True):
                self.flags[slot] = _flags(low, high, self.flags[slot])


def _flags(low: float, high: float, known: Flags | None) -> Flags:
    infinity = float("inf")
    return Flags(
        nan=low != low,
        positive=high == infinity,
        negative=low == -infinity,
        absmax=max(abs(low), abs(high)),
        numel=0 if known is None else known.numel,
    )


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield dense real floating tensors that together hold all values of `tensor`."""
    if tensor.device.type == "meta" or tensor.is_quantized:
        return
    inner = _held_by(tensor)
    if inner is not None:
        for each in inner:
            yield from _parts(each)
    elif tensor.dtype.is_complex:
        yield from _parts(torch.view_as_real(tensor.detach().resolve_conj()))
    elif tensor.dtype.is_floating_point and tensor.numel():
        yield tensor if tensor.dtype in REDUCIBLE else tensor.float()


def _held_by(tensor: torch.Tensor) -> Sequence[torch.Tensor] | None:
    """Return the tensors that hold the values of one that has none itself."""
    if tensor.layout is torch.sparse_coo:
        return (tensor._values(),)
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [getattr(tensor, name) for name in names]
    if tensor.is_nested:
        return tensor.unbind()
    if tensor.layout is not torch.strided:
        return (tensor.values(),)
    return None
