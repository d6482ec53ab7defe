"""Copies of tensors taken together: one block per stretch of a storage that is looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch

from flightrec.tree.raw import extent, first_element, storage_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ALIGNMENT = 64
"""Blocks start at a multiple of this in the user's storage, so that a copy is aligned alike."""

NEAR = 512
"""Stretches of one storage that are at most this many bytes apart become one block."""

SMALL = 65536
"""Blocks up to this many bytes are copied whole, however little of them is used."""

COMPARED = 1 << 20
"""Tensors on the CPU up to this many bytes are compared with their copy, not trusted by version."""

Mode: TypeAlias = Literal["copy", "own", "reference"]
"""Copy the bytes; take them over, since nobody writes to them; or watch them by fingerprint."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ROW = 1024


@dataclass(slots=True, eq=False)
class Block:
    """A stretch of bytes: of a copy, or of the user's own storage where it has a fingerprint."""

    holder: torch.Tensor
    """Any tensor on the storage that has the bytes."""

    start: int
    """First byte in that storage."""

    nbytes: int
    fingerprint: tuple[torch.Tensor, ...] | None = None
    """Of the bytes when they were kept by reference; None for a copy, which nobody changes."""

    def data(self) -> torch.Tensor:
        """Return the bytes, uint8, shared."""
        return storage_bytes(self.holder, self.start, self.nbytes)

    @property
    def held(self) -> bool:
        """Is its memory kept by us alone?"""
        return self.fingerprint is None

    @property
    def freed(self) -> bool:
        """Was the user's storage shrunk since?"""
        return self.holder.untyped_storage().nbytes() < self.start + self.nbytes


@dataclass(slots=True, eq=False)
class Place:
    """Where a tensor lies in its block, counted in elements; `block` None if it has no bytes."""

    block: Block | None
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    device: torch.device
    requires_grad: bool
    lost: bool = False
    """True where there were bytes, and they could not be copied."""

    def tensor(self) -> torch.Tensor:
        """Return the tensor as it was, over the block's own memory; it must have a block."""
        if self.block is None:
            raise ValueError("a tensor without bytes has no block")
        holder = self.block.holder
        start = self.block.start // self.dtype.itemsize + self.offset
        if (
            holder.dtype is self.dtype
            and holder.size() == self.size
            and holder.stride() == self.stride
            and first_element(holder) == start
        ):
            return holder
        empty = torch.empty(0, dtype=self.dtype, device=holder.device)
        return empty.set_(holder.untyped_storage(), start, self.size, self.stride)


def place(tensors: Sequence[torch.Tensor], mode: Mode) -> list[Place]:
    """Copy the tensors, or keep references to them, and say where each one lies.

    Those that share a storage share a block where they overlap or nearly touch, unless most of
    it is used by none of them: then each is copied on its own, densely, and no longer shares.
    """
    places: dict[int, Place] = {}
    groups: dict[int, list[tuple[int, torch.Tensor]]] = {}
    for index, original in enumerate(tensors):
        tensor = original.detach()
        if tensor.is_meta or tensor.numel() == 0:
            places[index] = _placed(original, tensor, None, first_element(tensor))
        elif tensor.is_neg() or tensor.is_conj():
            dense = tensor.resolve_conj().resolve_neg()
            places[index] = _placed(original, dense, _dense_block(dense), 0)
        else:
            groups.setdefault(tensor.untyped_storage().data_ptr(), []).append((index, tensor))
    for group in groups.values():
        if len(group) == 1 and mode == "copy":
            index, tensor = group[0]
            twin = _twin(tensor)
            if twin is not None:
                block = Block(twin, 0, twin.nbytes)
                places[index] = _placed(tensors[index], tensor, block, 0)
                continue
        for index, block, offset, dense in _blocks(group, mode):
            places[index] = _placed(tensors[index], dense, block, offset)
    return [places[index] for index in range(len(tensors))]


def nowhere(tensor: torch.Tensor) -> Place:
    """Return the place of a tensor whose bytes could not be had."""
    placed = _placed(tensor, tensor, None, first_element(tensor))
    placed.lost = not tensor.is_meta and tensor.numel() > 0
    return placed


def _placed(
    original: torch.Tensor, layout: torch.Tensor, block: Block | None, offset: int
) -> Place:
    return Place(
        block,
        layout.dtype,
        offset,
        layout.size(),
        layout.stride(),
        layout.device,
        original.requires_grad,
    )


def _dense_block(tensor: torch.Tensor) -> Block:
    start = first_element(tensor) * tensor.itemsize
    return Block(tensor, start, extent(tensor.size(), tensor.stride()) * tensor.itemsize)


def _twin(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a clone that can stand for it: dense, with its strides, and aligned as it is."""
    if first_element(tensor) * tensor.itemsize % ALIGNMENT:
        return None
    if not tensor.is_contiguous() and extent(tensor.size(), tensor.stride()) != tensor.numel():
        return None
    twin = tensor.clone()
    return twin if twin.stride() == tensor.stride() else None


def _used(tensor: torch.Tensor) -> int:
    """Bytes of a tensor that it really has: expanded dimensions count once."""
    pairs = zip(tensor.size(), tensor.stride(), strict=True)
    return math.prod(n for n, step in pairs if step) * tensor.itemsize


def _stretches(
    group: list[tuple[int, torch.Tensor]],
) -> Iterator[tuple[int, int, list[tuple[int, torch.Tensor]]]]:
    """Yield (first byte, end, members) of the stretches that the tensors of a storage cover."""
    spans = []
    for index, tensor in group:
        first = first_element(tensor) * tensor.itemsize
        length = extent(tensor.size(), tensor.stride()) * tensor.itemsize
        spans.append((first, first + length, index, tensor))
    spans.sort(key=lambda span: span[:3])
    start, end = spans[0][:2]
    members: list[tuple[int, torch.Tensor]] = []
    for first, last, index, tensor in spans:
        if first > end + NEAR:
            yield start, end, members
            start, end, members = first, last, []
        end = max(end, last)
        members.append((index, tensor))
    yield start, end, members


def _blocks(
    group: list[tuple[int, torch.Tensor]], mode: Mode
) -> Iterator[tuple[int, Block, int, torch.Tensor]]:
    """Yield (index, block, offset in elements, tensor whose size and stride hold)."""
    for start, end, members in _stretches(group):
        first = start - start % ALIGNMENT
        if end - first > SMALL and end - start > 2 * sum(_used(tensor) for _, tensor in members):
            for index, tensor in members:
                dense = _densely(tensor)
                yield index, _dense_block(dense), 0, dense
            continue
        holder = members[0][1]
        data = storage_bytes(holder, first, end - first)
        if mode == "copy":
            block = Block(data.clone(), 0, end - first)
        else:
            seen = fingerprint(data) if mode == "reference" else None
            block = Block(holder, first, end - first, seen)
        for index, tensor in members:
            offset = first_element(tensor) - first // tensor.itemsize
            yield index, block, offset, tensor


def _densely(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into as few bytes as it uses; dimensions keep their order in memory."""
    flat = [step == 0 for step in tensor.stride()]
    size = [1 if once else n for n, once in zip(tensor.size(), flat, strict=True)]
    once = tensor.as_strided(size, tensor.stride(), tensor.storage_offset())
    dense = once.clone()
    if True not in flat:
        return dense
    stride = [0 if same else step for step, same in zip(dense.stride(), flat, strict=True)]
    return dense.as_strided(tensor.size(), stride)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same memory as integers, so that NaN equals NaN and -0 differs from 0."""
    if tensor.dtype is torch.complex128:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_BITS[tensor.dtype.itemsize])


def is_still(tensor: torch.Tensor, placed: Place) -> bool:
    """Does the tensor hold what its copy holds, as far as can be told without waiting?

    `_version` misses writes through NumPy and `.data`, so small CPU tensors are compared.
    """
    if placed.requires_grad != tensor.requires_grad or placed.stride != tensor.stride():
        return False
    if placed.block is None or tensor.device.type != "cpu" or placed.block.nbytes > COMPARED:
        return True
    return torch.equal(bits(tensor.detach()), bits(placed.tensor()))


def fingerprint(data: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return sums that change when bytes change or trade places, on the device of `data`.

    `data` is uint8, shape (nbytes,). Its 8-byte words are laid out in rows of 1024, and summed by
    row and by column, wrapping around: no temporaries, at the speed of memory. Words of the last,
    shorter row are kept as they are.
    """
    whole = data.numel() // (8 * _ROW) * (8 * _ROW)
    rows = data[:whole].view(torch.int64).view(-1, _ROW)
    return rows.sum(0), rows.sum(1), data[whole:].clone()
