"""HDF5 as the format uses it: datasets written chunk by chunk, and read with suspicion.

Everything goes through h5py's low-level calls: a high-level `file[name]` follows soft and
external links, and turns on conversions that a stranger's file may choose.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5p, h5s, h5t, h5z

from flightrec.errors import CorruptIncidentError, FlightrecError
from flightrec.incident import codec
from flightrec.incident.layout import (
    LIBVER,
    MAX_ATTRIBUTE_BYTES,
    MAX_DIMENSIONS,
    SHUFFLE,
    ZSTD,
    ZSTD_LEVEL,
    Chunk,
    chunk_shape,
    chunks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from flightrec.incident.output import Output


@contextmanager
def damage_reported() -> Iterator[None]:
    """Turn what h5py raises for a damaged or hostile file into `CorruptIncidentError`."""
    try:
        yield
    except FlightrecError:
        raise
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, ArithmeticError) as problem:
        text = " ".join(str(problem).split())
        raise CorruptIncidentError(f"HDF5 says: {text[:300]}") from problem


def create_file(output: Output) -> Any:
    """Return a new `h5py.File` over `output`; `output.check` says whether writing failed."""
    return h5py.File(output, "w", libver=LIBVER)


def open_file(path: Path) -> Any:
    """Return an `h5py.File` for reading."""
    return h5py.File(path, "r", locking=False)


@dataclass(frozen=True, slots=True)
class Block:
    """One dataset of numbers: chunked, perhaps shuffled and compressed, little-endian."""

    dataset: Any
    """An `h5py.h5d.DatasetID`."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    width: int
    """Bytes of one number."""

    filters: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers."""
        return prod(self.shape) * self.width

    @property
    def chunk_bytes(self) -> int:
        """Raw bytes of one chunk, padding included."""
        return prod(self.chunk) * self.width

    def chunks(self) -> Iterator[Chunk]:
        """Yield its chunks in row-major order."""
        return chunks(self.shape, self.chunk)

    def write(self, chunk: Chunk, frame: bytes) -> None:
        """Write the frame of one chunk."""
        self.dataset.write_direct_chunk(chunk.offset, frame, 0)

    def read(self, out_B: NDArray[np.uint8]) -> None:
        """Read all numbers to `out_B`, uint8 of shape (nbytes,).

        Raises `CorruptIncidentError` before anything larger than a chunk is allocated.
        """
        limit = codec.largest_frame(self.chunk_bytes)
        for chunk in self.chunks():
            with damage_reported():
                stored = self.dataset.get_chunk_info_by_coord(chunk.offset)
                if stored.byte_offset is None or stored.size > limit:
                    raise CorruptIncidentError(
                        f"the chunk at {chunk.offset} is missing or too long"
                    )
                # The mask that read_direct_chunk returns is 0 until the file was reopened (3.16).
                _, frame = self.dataset.read_direct_chunk(chunk.offset)
            numbers_NW = codec.decode(
                frame, self.filters, stored.filter_mask, self.width, self.chunk_bytes
            )
            first, last = chunk.start * self.width, (chunk.start + chunk.length) * self.width
            codec.unshuffle(numbers_NW, out_B[first:last])


def create_block(group: Any, name: str, shape: Sequence[int], stored: str) -> Block:
    """Make a dataset of numbers of the numpy type `stored` in an `h5py.Group`."""
    kind = np.dtype(stored)
    properties = h5p.create(h5p.DATASET_CREATE)
    chunk = chunk_shape(shape, kind.itemsize)
    properties.set_chunk(chunk)
    properties.set_fill_time(h5d.FILL_TIME_NEVER)
    filters = codec.pipeline(kind.itemsize)
    if SHUFFLE in filters:
        properties.set_shuffle()
    properties.set_filter(ZSTD, h5z.FLAG_OPTIONAL, (ZSTD_LEVEL,))
    dataset = h5d.create(
        group.id,
        name.encode("ascii"),
        h5t.py_create(kind),
        h5s.create_simple(tuple(shape)),
        properties,
    )
    return Block(dataset, tuple(shape), chunk, kind.itemsize, filters)


def open_group(parent: Any, name: str) -> Any:
    """Return the `GroupID` of a child that is linked firmly; raises `CorruptIncidentError`."""
    with damage_reported():
        _check_link(parent, name)
        return h5g.open(parent, name.encode("ascii"))


def open_block(parent: Any, name: str, stored: Sequence[str], *, max_bytes: int) -> Block:
    """Open a child as numbers of one of the numpy types `stored`.

    Raises `CorruptIncidentError` unless it is linked firmly, lies in this file, has the chunks
    that the format gives it, no filter but shuffle and zstd, and declares at most `max_bytes`.
    """
    with damage_reported():
        _check_link(parent, name)
        dataset = h5d.open(parent, name.encode("ascii"))
        properties = dataset.get_create_plist()
        # The layout comes first: to ask a virtual dataset for its shape opens other files.
        if properties.get_layout() != h5d.CHUNKED or properties.get_external_count():
            raise CorruptIncidentError(f"{name} is not chunked in this file")
        kind = dataset.get_type()
        width = next(
            (np.dtype(t).itemsize for t in stored if kind.equal(h5t.py_create(np.dtype(t)))), None
        )
        if width is None:
            raise CorruptIncidentError(f"{name} does not hold {' or '.join(stored)}")
        shape = _shape(dataset, name)
        nbytes, chunk = prod(shape) * width, chunk_shape(shape, width)
        if nbytes > max_bytes:
            raise CorruptIncidentError(f"{name} declares {nbytes} bytes, the most are {max_bytes}")
        if properties.get_chunk() != chunk:
            raise CorruptIncidentError(f"{name} has chunks of {properties.get_chunk()}")
        return Block(dataset, shape, chunk, width, _filters(properties, name, width))


def _check_link(parent: Any, name: str) -> None:
    if not parent.links.exists(name.encode("ascii")):
        raise CorruptIncidentError(f"{name} is missing")
    if parent.links.get_info(name.encode("ascii")).type != h5l.TYPE_HARD:
        raise CorruptIncidentError(f"{name} is a link to elsewhere")


def _shape(dataset: Any, name: str) -> tuple[int, ...]:
    space = dataset.get_space()
    if space.get_simple_extent_type() != h5s.SIMPLE:
        raise CorruptIncidentError(f"{name} has no shape")
    shape: tuple[int, ...] = space.get_simple_extent_dims()
    if not 0 < len(shape) <= MAX_DIMENSIONS or 0 in shape:
        raise CorruptIncidentError(f"{name} has the shape {shape}")
    if space.get_simple_extent_dims(maxdims=True) != shape:
        raise CorruptIncidentError(f"{name} can grow")
    return shape


def _filters(properties: Any, name: str, width: int) -> tuple[int, ...]:
    found = [properties.get_filter(n) for n in range(properties.get_nfilters())]
    numbers = tuple(number for number, *_ in found)
    if numbers not in ((), (SHUFFLE,), (ZSTD,), (SHUFFLE, ZSTD)):
        raise CorruptIncidentError(f"{name} has the filters {numbers}")
    if SHUFFLE in numbers and tuple(found[0][2]) != (width,):
        raise CorruptIncidentError(f"{name} is shuffled by {found[0][2]} bytes")
    return numbers


def set_text(owner: Any, name: str, text: str) -> None:
    """Set an attribute of an h5py object's id to text of a fixed length, cut to 255 bytes."""
    value = np.array(text.encode("utf-8", "replace")[:255] or b"\0")
    kind = h5t.py_create(value.dtype)
    kind.set_cset(h5t.CSET_UTF8)
    space = h5s.create(h5s.SCALAR)
    h5a.create(owner, name.encode("ascii"), kind, space).write(value, kind)


def set_whole(owner: Any, name: str, value: int | Sequence[int]) -> None:
    """Set an attribute of an h5py object's id to a whole number, or to a list of them."""
    numbers = np.asarray(value, "<i8")
    space = h5s.create_simple(numbers.shape) if numbers.ndim else h5s.create(h5s.SCALAR)
    kind = h5t.py_create(numbers.dtype)
    attribute = h5a.create(owner, name.encode("ascii"), kind, space)
    if numbers.size:
        attribute.write(numbers)


def attribute(owner: Any, name: str) -> int | str | None:
    """Return a scalar attribute, None where there is none such.

    Raises `CorruptIncidentError` where it is anything but a whole number or a short text.
    """
    with damage_reported():
        if not h5a.exists(owner, name.encode("ascii")):
            return None
        found = h5a.open(owner, name.encode("ascii"))
        kind = found.get_type()
        plain = kind.get_class() == h5t.INTEGER or (
            kind.get_class() == h5t.STRING and not kind.is_variable_str()
        )
        scalar = found.get_space().get_simple_extent_type() == h5s.SCALAR
        if not plain or not scalar or kind.get_size() > MAX_ATTRIBUTE_BYTES:
            raise CorruptIncidentError(f"its attribute {name} is not a number or a text")
        value = np.empty((), kind.dtype)
        found.read(value, kind)
        item = value.item()
        return item.decode("utf-8", "replace") if isinstance(item, bytes) else int(item)
