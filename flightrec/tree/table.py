"""The recording side of tensors: collected by reference, copied together, handed out as bytes."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flightrec.tree.copies import fingerprint, is_still, nowhere, place
from flightrec.tree.parts import is_plain
from flightrec.tree.raw import Quiet, dtype_name
from flightrec.types import StorageData, TensorRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flightrec.tree.copies import Block, Mode, Place

ASYNCHRONOUS = frozenset({"cuda", "xpu"})
"""Types of device whose copies are only queued when `freeze` returns."""


@dataclass(slots=True, eq=False)
class _Entry:
    """One tensor of the table: the tensor itself until it is frozen, its place afterwards."""

    object: int
    role: str
    name: str
    tensor: torch.Tensor | None
    place: Place | None = None


class TensorTable:
    """Collects tensors of one stretch of a run; an index stands for each one in nodes.

    `add` only notes a tensor; `freeze` copies all noted since, on their own devices and without
    waiting for them. Views that are frozen together go on sharing a storage, strides and offsets
    stay as they were, and only the part of a storage that is looked at is copied.

    With `copy=False` tensors are kept by reference with a fingerprint of their bytes; what has
    changed by the time of `export` is marked `reliable=False` there. One thread at a time.
    """

    def __init__(self, *, copy: bool = True) -> None:
        """Make an empty table that copies, or keeps references."""
        self._copy = copy
        self._entries: list[_Entry] = []
        self._fresh: list[_Entry] = []
        self._owned: list[_Entry] = []
        self._objects = 0
        self._nbytes = 0
        # id(tensor) -> weak reference, version, address, index: found again, not kept alive
        self._seen: dict[int, tuple[weakref.ref[torch.Tensor], int | None, int, int]] = {}
        self._events: list[torch.Event] = []

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._entries)

    @property
    def copies(self) -> bool:
        """Does it copy, rather than keep references?"""
        return self._copy

    @property
    def nbytes(self) -> int:
        """Bytes of copies held, on all devices together."""
        return self._nbytes

    def add(
        self, tensor: torch.Tensor, *, role: str = "value", name: str = "", owned: bool = False
    ) -> int:
        """Note a tensor and return its index; the same object unchanged has the same index.

        `owned` promises that nobody will write to it, so that no copy is needed. Raises
        `TypeError` for a tensor that is not plain: an `Encoder` takes those apart.
        """
        seen = self._seen.get(id(tensor))
        if seen is not None and seen[0]() is tensor:
            index = seen[3]
            placed = self._entries[index].place
            if placed is None or _is_unchanged(tensor, placed, seen[1], seen[2]):
                return index
        if not is_plain(tensor):
            raise TypeError(f"not strided memory of its own: a {type(tensor).__name__}")
        index = len(self._entries)
        entry = _Entry(self._objects, role, name, tensor)
        self._entries.append(entry)
        (self._owned if owned else self._fresh).append(entry)
        self._objects += 1
        version = None if tensor.is_inference() else tensor._version
        self._seen[id(tensor)] = (weakref.ref(tensor), version, tensor.data_ptr(), index)
        return index

    def freeze(self) -> None:
        """Copy what was added since the last freeze; never waits for a device.

        Where that fails (out of memory, mostly) the error passes on, and the tensors stay in the
        table without bytes, `reliable=False`.
        """
        if not self._fresh and not self._owned:
            return
        fresh, self._fresh = self._fresh, []
        owned, self._owned = self._owned, []
        with Quiet():
            self._place(fresh, "copy" if self._copy else "reference")
            self._place(owned, "own")

    def _place(self, entries: list[_Entry], mode: Mode) -> None:
        tensors = [entry.tensor for entry in entries if entry.tensor is not None]
        try:
            places = place(tensors, mode)
        except Exception:
            for entry, tensor in zip(entries, tensors, strict=True):
                entry.place, entry.tensor = nowhere(tensor), None
            raise
        for entry, placed in zip(entries, places, strict=True):
            entry.place, entry.tensor = placed, None
        blocks = {id(placed.block): placed.block for placed in places}
        self._nbytes += sum(block.nbytes for block in blocks.values() if block and block.held)
        for device in {placed.device for placed in places}:
            if device.type in ASYNCHRONOUS:
                event = torch.Event(device)
                event.record()
                self._events.append(event)

    def extend(self, other: TensorTable) -> list[int]:
        """Append the entries of another table, sharing its copies; return their new indices.

        Both are frozen first. Nodes of the other table fit after `rebase(node, indices)`.
        """
        self.freeze()
        other.freeze()
        first = len(self._entries)
        for entry in other._entries:
            number = entry.object + self._objects
            self._entries.append(_Entry(number, entry.role, entry.name, None, entry.place))
        for key, (tensor, version, address, index) in other._seen.items():
            self._seen[key] = (tensor, version, address, index + first)
        self._objects += other._objects
        self._nbytes += other._nbytes
        self._events += other._events
        return list(range(first, first + len(other._entries)))

    def export(self) -> tuple[tuple[StorageData, ...], tuple[TensorRef, ...]]:
        """Bring everything to the host: one storage per block, one ref per tensor.

        Freezes first, and waits for the devices. Tensors without bytes (empty, meta) have
        storage -1; so has one kept by reference whose memory is gone, with `reliable=False`.
        """
        self.freeze()
        for event in self._events:
            event.synchronize()
        with Quiet():
            return self._export()

    def _export(self) -> tuple[tuple[StorageData, ...], tuple[TensorRef, ...]]:
        storages: list[StorageData] = []
        numbers: dict[int, tuple[int, bool]] = {}
        widths = self._element_types()
        for block in _blocks(self._entries):
            data, reliable = _host_bytes(block)
            if data is None:
                numbers[id(block)] = (-1, False)
                continue
            numbers[id(block)] = (len(storages), reliable)
            name = dtype_name(widths[id(block)].most_common(1)[0][0])
            storages.append(StorageData(data=data.numpy(), dtype=name))
        refs = tuple(
            _ref(entry, entry.place, numbers) for entry in self._entries if entry.place is not None
        )
        return tuple(storages), refs

    def _element_types(self) -> dict[int, Counter[torch.dtype]]:
        found: dict[int, Counter[torch.dtype]] = {}
        for entry in self._entries:
            if entry.place is not None and entry.place.block is not None:
                found.setdefault(id(entry.place.block), Counter())[entry.place.dtype] += 1
        return found


def _is_unchanged(tensor: torch.Tensor, placed: Place, version: int | None, address: int) -> bool:
    """Is a frozen tensor what it was? Without a version (inference tensors) nobody can say."""
    if version is None or tensor._version != version or tensor.data_ptr() != address:
        return False
    with Quiet():
        return placed.size == tensor.size() and is_still(tensor, placed)


def _blocks(entries: Iterable[_Entry]) -> list[Block]:
    places = [entry.place for entry in entries]
    blocks = [found.block for found in places if found is not None and found.block is not None]
    return list({id(block): block for block in blocks}.values())


def _host_bytes(block: Block) -> tuple[torch.Tensor | None, bool]:
    """Return the bytes on the host, and whether they are those that were frozen."""
    if block.freed:
        return None, False
    if block.fingerprint is None:
        return block.data().cpu(), True
    data = block.data().clone()
    same = all(map(torch.equal, block.fingerprint, fingerprint(data)))
    return data.cpu(), same


def _ref(entry: _Entry, placed: Place, numbers: dict[int, tuple[int, bool]]) -> TensorRef:
    storage, reliable = -1, not placed.lost
    if placed.block is not None:
        storage, reliable = numbers[id(placed.block)]
    return TensorRef(
        storage=storage,
        dtype=dtype_name(placed.dtype),
        offset=placed.offset,
        size=tuple(placed.size),
        stride=placed.stride,
        object=entry.object,
        requires_grad=placed.requires_grad,
        device=str(placed.device),
        role=entry.role,
        name=entry.name,
        reliable=reliable,
    )
