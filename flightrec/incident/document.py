"""The file layout in words, for people and other programs; scripts/schemas writes it down."""

from __future__ import annotations

from typing import Final

from flightrec.incident import layout
from flightrec.incident.migrate import FORMAT, HISTORY

_TEXT: Final = f"""\
# Layout of an incident file

Generated from `flightrec/incident/layout.py` by `scripts/schemas`. Format {FORMAT}.

One HDF5 file `<id>{layout.SUFFIX}` per incident, mode 0600. HDF5 of file format
{layout.LIBVER[0]}, little-endian, no user block, hard links only. Any HDF5 tool with the zstd
filter (`hdf5plugin`) reads it; this project brings its own zstd and needs no filter plug-in.

A writer uses a hidden name `.<id>@<host>@<pid>.part` in the same folder, then flush, fsync,
rename, fsync of the folder. Such a file whose process is gone may be deleted.

## Objects

| object | what | shape and type |
|---|---|---|
| `/{layout.MANIFEST}` | the manifest, JSON in ASCII; `incident.schema.json` | (bytes,) uint8 |
| `/{layout.STORAGES}/<n>` | bytes of storage n of the manifest | see below |
| `/{layout.STATS}` | statistics; absent when empty | (steps, sites, columns) float64 |
| `/{layout.EMPTY}` | group; one attribute per tensor without bytes, named by its number | |

`{layout.STATS}`: steps as in the manifest's `steps`, sites as in its `sites`, columns as in
`flightrec.types.Stat`; NaN where a column was not measured.

A storage is a block of memory that tensors look at. The manifest's `tensors` say how: dtype, and
offset, size and stride in elements. Storages of equal bytes lie in the file once, under the number
of the first; `storages` of the manifest has an entry with size and hash for each. Two tensors share
memory if and only if they name the same storage, and are one object if and only if their `object`
is equal. A storage of no bytes has no dataset.

A storage that one contiguous tensor fills has that tensor's shape, any other is flat. A scalar has
the shape (1,). Complex numbers are pairs in a last dimension of 2. Where the bytes are no whole
number of elements, the dataset is uint8.

## Attributes

| attribute of | name | value |
|---|---|---|
| `/` | `{layout.FORMAT_ATTRIBUTE}` | whole number, the version of the format |
| `/` | `{layout.ID_ATTRIBUTE}` | text, the incident's id |
| `/` | `{layout.MANIFEST_HASH}` | text, hash of the manifest's bytes |
| `/` | `{layout.STATS_HASH}` | text, hash of the bytes of `/{layout.STATS}`, or of none |
| `/` | `{layout.HMAC}` | text, absent when unsigned |
| `/` | `{layout.COMPLETE}` | 1; set last, a file without it was never finished |
| a storage | `{layout.TORCH_DTYPE}` | text, where HDF5 has no such type; the numbers are raw bits |
| a storage | `{layout.SHAPE}` | whole numbers, where the dataset's shape is not the tensor's |
| a storage | `{layout.NAME}` | text, name of the first tensor that fills it |

Hashes are blake2b of 16 bytes, in hex. `{layout.HMAC}` is HMAC-SHA256, in hex, of the JSON object
with the keys `{layout.ID_ATTRIBUTE}`, `{layout.MANIFEST_HASH}`, `{layout.STATS_HASH}` in this
order, without spaces. Ids match `{layout.ID_PATTERN}`.

## Chunks

Every dataset is chunked, with the filters shuffle ({layout.SHUFFLE}; not for 1-byte numbers) and
zstd ({layout.ZSTD}, optional, level {layout.ZSTD_LEVEL}). A chunk is one row-major stretch of at
most {layout.CHUNK_BYTES} raw bytes: as many of the last dimensions as fit, and an even part of the
dimension before them. The last chunk of a row is padded with zeros. Each chunk is one zstd frame
that declares exactly the raw size of the chunk.

## Limits of a reader

| what | at most |
|---|---|
| bytes declared by all storages together, and by one tensor (can be set) | {layout.MAX_BYTES} |
| bytes of the manifest | {layout.MAX_MANIFEST_BYTES} |
| values in the manifest | {layout.MAX_JSON_VALUES} |
| nesting of the manifest | {layout.MAX_JSON_DEPTH} |
| dimensions of a tensor | {layout.MAX_DIMENSIONS} |
| columns of the statistics | {layout.MAX_STATISTICS} |

Soft and external links, external storage, virtual layouts, datasets that can grow and any other
filter are refused.

## Element types

| torch | HDF5 | bytes |
|---|---|---|
"""


def layout_document() -> str:
    """Return schemas/layout.md."""
    types = "".join(
        f"| {name} | {element.stored[1:]}{' x 2' if element.lanes > 1 else ''} "
        f"| {element.itemsize} |\n"
        for name, element in layout.DTYPES.items()
    )
    history = "".join(f"- {version}: {change}\n" for version, change in HISTORY.items())
    return f"{_TEXT}{types}\n## Versions\n\n{history}"
