"""Where everything lies in an incident file: names, element types, chunks, ids, limits."""

from __future__ import annotations

import math
import os
import re
import socket
import time
import uuid
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SUFFIX: Final = ".h5"
"""An incident's file is its id and this."""

LIBVER: Final = ("v110", "v110")
"""Oldest and newest HDF5 file format that is used.

With `earliest` each chunked dataset costs 3,028 bytes beside its data (measured, h5py 3.16), with
`v110` 354: a 460K-parameter model would be 10% larger. And `v110` has a checksum on all metadata.
"""

# Names of objects and attributes. Objects of the root group:
MANIFEST: Final = "manifest"
STATS: Final = "stats"
STORAGES: Final = "storages"
EMPTY: Final = "empty"

# Attributes of the root group; COMPLETE is set last.
FORMAT_ATTRIBUTE: Final = "format"
ID_ATTRIBUTE: Final = "id"
MANIFEST_HASH: Final = "manifest_hash"
STATS_HASH: Final = "stats_hash"
HMAC: Final = "hmac"
COMPLETE: Final = "COMPLETE"

# Attributes of a storage's dataset.
TORCH_DTYPE: Final = "torch_dtype"
SHAPE: Final = "shape"
NAME: Final = "name"

# Filters, with the numbers the HDF Group gave them.
SHUFFLE: Final = 2
ZSTD: Final = 32015
ZSTD_LEVEL: Final = 3

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Raw bytes of the largest chunk."""

# What the reader accepts; the writer keeps to the same.
MAX_BYTES: Final = 64 * 1024**3
"""Bytes that all storages, or one tensor, may declare; `open_incident(max_bytes=...)`."""

MAX_MANIFEST_BYTES: Final = 128 * 1024 * 1024
MAX_JSON_DEPTH: Final = 400
MAX_JSON_VALUES: Final = 8_000_000
MAX_DIMENSIONS: Final = 32
MAX_STATISTICS: Final = 256
MAX_ATTRIBUTE_BYTES: Final = 4096


class Element(NamedTuple):
    """How elements of a torch dtype lie in HDF5."""

    itemsize: int
    """Bytes of one element in memory, which is how strides and offsets count."""

    stored: str
    """NumPy name of the HDF5 type; complex numbers are pairs in a last dimension of 2."""

    native: bool
    """Does the HDF5 type alone say what the dtype is? Else there is a `torch_dtype`."""

    @property
    def width(self) -> int:
        """Bytes of one stored number, which is the width of the shuffle."""
        return int(self.stored[2:])

    @property
    def lanes(self) -> int:
        """Stored numbers per element: 2 for complex, else 1."""
        return self.itemsize // self.width


def _elements() -> dict[str, Element]:
    table = {
        name: Element(int(stored[2:]), stored, native=True)
        for name, stored in (
            ("float64", "<f8"),
            ("float32", "<f4"),
            ("float16", "<f2"),
            ("int64", "<i8"),
            ("int32", "<i4"),
            ("int16", "<i2"),
            ("int8", "|i1"),
            ("uint64", "<u8"),
            ("uint32", "<u4"),
            ("uint16", "<u2"),
            ("uint8", "|u1"),
        )
    }
    table["complex128"] = Element(16, "<f8", native=False)
    table["complex64"] = Element(8, "<f4", native=False)
    table["complex32"] = Element(4, "<f2", native=False)
    table["bcomplex32"] = Element(4, "<u2", native=False)
    table["bfloat16"] = Element(2, "<u2", native=False)
    table["bool"] = Element(1, "|u1", native=False)
    for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"):
        table[f"float8_{name}"] = Element(1, "|u1", native=False)
    table["float4_e2m1fn_x2"] = Element(1, "|u1", native=False)
    table["qint32"] = Element(4, "<i4", native=False)
    table["qint8"] = Element(1, "|i1", native=False)
    table["bits16"] = Element(2, "<u2", native=False)
    for name in ("quint8", "quint4x2", "quint2x4", "bits8", "bits4x2", "bits2x4", "bits1x8"):
        table[name] = Element(1, "|u1", native=False)
    for bits in range(1, 8):
        table[f"int{bits}"] = Element(1, "|i1", native=False)
        table[f"uint{bits}"] = Element(1, "|u1", native=False)
    return table


DTYPES: Final[dict[str, Element]] = _elements()
"""Every dtype that an incident may name, as torch names it without `torch.`."""


class Chunk(NamedTuple):
    """One chunk of a dataset."""

    offset: tuple[int, ...]
    """Its first element, as HDF5 addresses it."""

    start: int
    """Its first element, counted through the dataset in row-major order."""

    length: int
    """How many elements are real; what is left of the chunk is padding."""


def chunk_shape(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the one chunk shape that format 1 has for a dataset of `shape`, no dimension 0.

    A chunk is one row-major stretch: as many of the last dimensions as fit into CHUNK_BYTES, and
    an even part of the dimension before them.
    """
    chunk = list(shape)
    block = itemsize
    for axis in reversed(range(len(chunk))):
        if block * chunk[axis] > CHUNK_BYTES:
            rows = max(1, CHUNK_BYTES // block)
            parts = math.ceil(chunk[axis] / rows)
            chunk[axis] = math.ceil(chunk[axis] / parts)
            chunk[:axis] = [1] * axis
            break
        block *= chunk[axis]
    return tuple(chunk)


def chunks(shape: Sequence[int], chunk: Sequence[int]) -> Iterator[Chunk]:
    """Yield the chunks of a dataset in row-major order; `chunk` is from `chunk_shape`."""
    axis = next((n for n, rows in enumerate(chunk) if rows != 1), len(chunk) - 1)
    inner = math.prod(shape[axis + 1 :])
    tail = (0,) * (len(shape) - axis - 1)
    step = chunk[axis]
    for row, lead in enumerate(product(*map(range, shape[:axis]))):
        for first in range(0, shape[axis], step):
            start = (row * shape[axis] + first) * inner
            yield Chunk((*lead, first, *tail), start, min(step, shape[axis] - first) * inner)


ID_PATTERN: Final = "^[0-9A-Za-z][0-9A-Za-z_-]{0,63}$"
"""Ids are used as file names on every system."""

_ID = re.compile(ID_PATTERN.removesuffix("$") + r"\Z")


def safe_id(text: str) -> bool:
    """May `text` be an id, that is a file name without surprises?"""
    return _ID.match(text) is not None


def new_id() -> str:
    """Return a new id: a UUID of version 7, so that later ids sort after earlier ones.

    Python 3.14 has `uuid.uuid7`. Before, the 48 bits of milliseconds and 12 bits of their
    fraction (RFC 9562, section 6.2, method 3) replace the first bits of a `uuid4`.
    """
    if made := getattr(uuid, "uuid7", None):
        return str(made())
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = rest * 4096 // 1_000_000
    random_bits = uuid.uuid4().int & ((1 << 64) - 1)  # with the variant, as in version 7
    return str(uuid.UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | random_bits))


def file_name(incident_id: str) -> str:
    """Return the name of an incident's file."""
    return f"{incident_id}{SUFFIX}"


_TEMPORARY = re.compile(r"\.(?P<id>[0-9A-Za-z_-]+)@(?P<host>[^@]*)@(?P<pid>[0-9]{1,10})\.part")

OTHER_HOST_SECONDS: Final = 24 * 3600.0
"""After this long without a write, a file of a process that cannot be asked is taken as dead."""


def temporary_name(incident_id: str) -> str:
    """Return the name under which this process writes the incident: hidden, never `*.h5`."""
    return f".{incident_id}@{_host()}@{os.getpid()}.part"


def is_stale(path: Path, *, idle_s: float = 60.0) -> bool:
    """Is this the half-written file of a process that is no more?

    That is: named by `temporary_name`, not written to for `idle_s` seconds, and its process is
    gone; where that cannot be seen (another host, Windows), not written to for a day.
    """
    found = _TEMPORARY.fullmatch(path.name)
    if found is None:
        return False
    try:
        idle = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    if idle < idle_s:
        return False
    if found["host"] == _host() and os.name == "posix":
        return not _alive(int(found["pid"]))
    return idle > OTHER_HOST_SECONDS


def _host() -> str:
    return re.sub("[^0-9A-Za-z.-]", "-", socket.gethostname())[:64]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
