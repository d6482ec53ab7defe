"""Write one capture as one file: complete under its final name, or not there at all."""

from __future__ import annotations

import os
import shutil
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flightrec.errors import CorruptIncidentError, StoreError
from flightrec.incident import codec, datasets, keys, layout
from flightrec.incident.manifest import check, from_json, tensor_entry, to_json
from flightrec.incident.migrate import FORMAT
from flightrec.incident.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from numpy.typing import NDArray

    from flightrec.incident.datasets import Block
    from flightrec.incident.layout import Chunk
    from flightrec.types import Capture, StorageData, TensorRef

RESERVE_BYTES: Final = 1024 * 1024
"""Free space that must be left beside the uncompressed size of an incident."""


def write(capture: Capture, folder: Path, *, key: bytes | None, threads: int | None = None) -> Path:
    """Write `capture` to `folder/<id>.h5`, mode 0600, and return that path.

    The file is signed where there is a `key` (see `keys.recording_key`). `threads` compress
    and hash, by default as many as this process may use, at most 4; besides the capture itself no
    more than a few chunks are in memory. Under the final name the file is complete or not there.

    Raises `StoreError` where the machine refuses: no such folder, no permission, not enough space,
    or the file is there already. Raises `ValueError` for a capture that no reader would take.
    """
    _check_capture(capture)
    final = folder / layout.file_name(capture.id)
    temporary = folder / layout.temporary_name(capture.id)
    with _refusals_reported(final):
        _check_room(final, capture)
        with Output(temporary) as output:
            try:
                workers = threads or _threads()
                with ThreadPoolExecutor(workers, "flightrec-codec") as pool:
                    _Writing(capture, output, pool, 4 * workers).to_file(key)
                output.check()
                output.sync()
                output.close()
                temporary.rename(final)
            except BaseException:
                output.close()
                temporary.unlink(missing_ok=True)
                raise
        _sync_names(folder)
    return final


def _check_capture(capture: Capture) -> None:
    """Raise `ValueError` for what would otherwise show only after the tensors were written."""
    if not layout.safe_id(capture.id) or capture.manifest.get("id") != capture.id:
        raise ValueError(f"not an id, or not the manifest's: {capture.id!r}")
    dtypes = {each.dtype for each in capture.storages} | {ref.dtype for ref in capture.tensors}
    if unknown := dtypes - layout.DTYPES.keys():
        raise ValueError(f"dtypes that the format does not have: {sorted(unknown)}")
    if any(not -1 <= ref.storage < len(capture.storages) for ref in capture.tensors):
        raise ValueError("a tensor names a storage that there is not")
    steps, sites, columns = capture.stats_TSK.shape
    if sites != len(capture.sites) or (
        sites
        and (steps != len(capture.manifest["steps"]) or not 0 < columns <= layout.MAX_STATISTICS)
    ):
        raise ValueError(f"statistics of shape {(steps, sites, columns)} fit no manifest")


@contextmanager
def _refusals_reported(final: Path) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except OSError as problem:
        reason = problem.strerror or " ".join(str(problem).split())[:300]
        raise StoreError(f"cannot write {final}: {reason}") from problem


def _threads() -> int:
    if hasattr(os, "sched_getaffinity"):
        return min(4, len(os.sched_getaffinity(0)))
    return min(4, os.cpu_count() or 1)


def _check_room(final: Path, capture: Capture) -> None:
    """Raise `StoreError` unless the name is free and the disk has room for the raw bytes."""
    if final.exists():
        raise StoreError(f"{final} is there already; incidents are never overwritten")
    needed = sum(len(storage.data) for storage in capture.storages) + capture.stats_TSK.nbytes
    free = shutil.disk_usage(final.parent).free
    if free < needed + RESERVE_BYTES:
        raise StoreError(
            f"cannot write {final}: {needed + RESERVE_BYTES} bytes are needed "
            f"({RESERVE_BYTES} of them stay free), {free} are free"
        )


def _sync_names(folder: Path) -> None:
    """Have the system write a folder's list of names to the disk."""
    if os.name == "nt":
        return  # Windows cannot open a folder, and writes its names by itself
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Writing:
    """One file being written: a pool encodes chunks, this thread alone talks to HDF5."""

    def __init__(
        self, capture: Capture, output: Output, pool: ThreadPoolExecutor, window: int
    ) -> None:
        """Keep at most `window` chunks, and as many hashes, in the pool."""
        self._capture = capture
        self._output = output
        self._pool = pool
        self._window = window
        self._pending: deque[tuple[Block, Chunk, Future[bytes]]] = deque()

    def to_file(self, key: bytes | None) -> None:
        """Fill the file and close it; COMPLETE is the last thing that is set."""
        with datasets.create_file(self._output) as file:
            entries = self._storages(file)
            self._empty_tensors(file)
            stats_hash = self._stats(file)
            text = self._manifest(entries)
            self._bytes(file, layout.MANIFEST, np.frombuffer(text, np.uint8), (len(text),), "|u1")
            self._drain(0)
            identity = keys.identity(self._capture.id, codec.content_hash(text), stats_hash)
            datasets.set_whole(file.id, layout.FORMAT_ATTRIBUTE, FORMAT)
            for name, value in identity.items():
                datasets.set_text(file.id, name, value)
            if key is not None:
                datasets.set_text(file.id, layout.HMAC, keys.signature(key, identity))
            file.flush()
            datasets.set_whole(file.id, layout.COMPLETE, 1)
            file.flush()

    def _manifest(self, storages: list[dict[str, Any]]) -> bytes:
        """Return the manifest's bytes, after reading them as a reader will."""
        capture = self._capture
        text = to_json(
            {
                **capture.manifest,
                "sites": [str(site) for site in capture.sites],
                "storages": storages,
                "tensors": [tensor_entry(ref) for ref in capture.tensors],
            }
        )
        try:
            check(from_json(text))
        except CorruptIncidentError as problem:
            raise ValueError(f"no reader would take this capture: {problem}") from problem
        return text

    def _storages(self, file: Any) -> list[dict[str, Any]]:
        """Write each content once, under the number of the first storage that has it."""
        capture = self._capture
        group = file.create_group(layout.STORAGES)
        shapes = _whole_tensors(capture.tensors, capture.storages)
        sizes = Counter(len(storage.data) for storage in capture.storages)
        written: set[str] = set()
        hashes: list[Future[str]] = []
        waiting = iter(capture.storages)
        for number, storage in enumerate(capture.storages):
            ahead = number + self._window - len(hashes)
            hashes += [
                self._pool.submit(codec.content_hash, each.data) for each in islice(waiting, ahead)
            ]
            if not len(storage.data):
                continue
            if sizes[len(storage.data)] > 1:  # else nothing can be equal: do not wait for the hash
                content = hashes[number].result()
                if content in written:
                    continue
                written.add(content)
            self._storage(group, number, storage, shapes.get(number))
        return [
            {"bytes": len(storage.data), "hash": done.result(), "dtype": storage.dtype}
            for storage, done in zip(capture.storages, hashes, strict=True)
        ]

    def _storage(
        self, group: Any, number: int, storage: StorageData, whole: TensorRef | None
    ) -> None:
        element = layout.DTYPES[storage.dtype]
        shape: tuple[int, ...] = (len(storage.data) // element.itemsize,)
        if whole is not None:
            shape = whole.size
        if len(storage.data) % element.itemsize:
            element, shape = layout.DTYPES["uint8"], (len(storage.data),)
        stored = shape + (element.lanes,) * (element.lanes > 1) or (1,)
        block = self._bytes(group, str(number), storage.data, stored, element.stored)
        if not element.native:
            datasets.set_text(block.dataset, layout.TORCH_DTYPE, storage.dtype)
        if whole is not None and stored != shape:
            datasets.set_whole(block.dataset, layout.SHAPE, shape)
        if whole is not None and whole.name:
            datasets.set_text(block.dataset, layout.NAME, whole.name)

    def _empty_tensors(self, file: Any) -> None:
        group = file.create_group(layout.EMPTY)
        for number, ref in enumerate(self._capture.tensors):
            if ref.storage < 0:
                text = f"{ref.dtype} {list(ref.size)} {ref.device} {ref.name}"
                datasets.set_text(group.id, str(number), text)

    def _stats(self, file: Any) -> str:
        stats_TSK = np.ascontiguousarray(self._capture.stats_TSK, "<f8")
        data = stats_TSK.reshape(-1).view(np.uint8)
        if data.size:
            self._bytes(file, layout.STATS, data, stats_TSK.shape, "<f8")
        return codec.content_hash(data.data)

    def _bytes(
        self,
        group: Any,
        name: str,
        data: NDArray[np.uint8],
        shape: Sequence[int],
        stored: str,
    ) -> Block:
        """Make a dataset, and queue its chunks for the pool."""
        block = datasets.create_block(group, name, shape, stored)
        width, size = block.width, block.chunk_bytes
        for chunk in block.chunks():
            part = data[chunk.start * width : (chunk.start + chunk.length) * width]
            self._pending.append((block, chunk, self._pool.submit(codec.encode, part, width, size)))
            self._drain(self._window)
        return block

    def _drain(self, most: int) -> None:
        """Write the oldest frames until at most `most` chunks are in the pool."""
        while len(self._pending) > most:
            block, chunk, frame = self._pending.popleft()
            block.write(chunk, frame.result())
            self._output.check()


def _whole_tensors(
    tensors: Sequence[TensorRef], storages: Sequence[StorageData]
) -> dict[int, TensorRef]:
    """Return the first tensor that is a storage, all of it and in order, where there is one."""
    found: dict[int, TensorRef] = {}
    for ref in tensors:
        if ref.storage < 0 or ref.storage in found or len(ref.size) >= layout.MAX_DIMENSIONS:
            continue
        storage = storages[ref.storage]
        strides, step = [], 1
        for n in reversed(ref.size):
            strides.append(step)
            step *= n
        size = step * layout.DTYPES[ref.dtype].itemsize
        in_order = all(
            n == 1 or have == want
            for n, have, want in zip(ref.size, ref.stride, reversed(strides), strict=True)
        )
        if ref.dtype == storage.dtype and size == len(storage.data) and not ref.offset and in_order:
            found[ref.storage] = ref
    return found
