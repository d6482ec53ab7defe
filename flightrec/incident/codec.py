"""One chunk to a frame and back: the HDF5 shuffle, zstd, and the content hash."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard

from flightrec.errors import CorruptIncidentError
from flightrec.incident.layout import SHUFFLE, ZSTD, ZSTD_LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Shape letters: N = numbers in a chunk, W = bytes of one number, B = raw bytes of a chunk.

FRAME_OVERHEAD = 1024
"""A frame may be this much larger than a 256th over its raw bytes; zstd's own bound is lower."""

_local = threading.local()


def content_hash(data: Any) -> str:
    """Return blake2b of 16 bytes, hex, over any contiguous buffer; lets other threads run."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def pipeline(width: int) -> tuple[int, ...]:
    """Return the filters of a dataset of numbers of `width` bytes, in order of writing."""
    return (SHUFFLE, ZSTD) if width > 1 else (ZSTD,)


def largest_frame(raw_bytes: int) -> int:
    """Return the size in bytes above which a stored chunk cannot be one of ours."""
    return raw_bytes + raw_bytes // 256 + FRAME_OVERHEAD


def encode(data_B: NDArray[np.uint8], width: int, chunk_bytes: int) -> bytes:
    """Return the frame of one chunk: padded with zeros to `chunk_bytes`, shuffled, compressed.

    `data_B` is uint8 of shape (at most chunk_bytes,), both a multiple of `width`.
    """
    if width == 1 and len(data_B) == chunk_bytes:
        return _compressor().compress(np.ascontiguousarray(data_B).data)
    count = len(data_B) // width
    planes_WN = np.empty((width, chunk_bytes // width), np.uint8)
    planes_WN[:, :count] = data_B.reshape(count, width).T
    planes_WN[:, count:] = 0
    return _compressor().compress(planes_WN.data)


def decode(
    frame: bytes, filters: Sequence[int], mask: int, width: int, chunk_bytes: int
) -> NDArray[np.uint8]:
    """Return the numbers of a chunk as bytes, shape (N, W); a view, for `unshuffle` to copy.

    `filters` are those of the dataset, in order of writing; bit n of `mask` says that this chunk
    went without filter n. Raises `CorruptIncidentError` where the frame does not hold exactly
    `chunk_bytes` bytes, and allocates no more than that.
    """
    applied = [number for n, number in enumerate(filters) if not mask >> n & 1]
    data = _decompress(frame, chunk_bytes) if ZSTD in applied else frame
    if len(data) != chunk_bytes:
        raise CorruptIncidentError(f"a chunk holds {len(data)} bytes instead of {chunk_bytes}")
    raw_B = np.frombuffer(data, np.uint8)
    return raw_B.reshape(width, -1).T if SHUFFLE in applied else raw_B.reshape(-1, width)


def unshuffle(numbers_NW: NDArray[np.uint8], out_B: NDArray[np.uint8]) -> None:
    """Write the first numbers of a decoded chunk to `out_B`; what is left over is padding.

    `numbers_NW` has shape (N, W), as `decode` returns it; `out_B` is contiguous uint8.
    """
    width = numbers_NW.shape[1]
    out_NW = out_B.reshape(-1, width)
    count = len(out_NW)
    for byte in range(width):  # 2.8 GB/s; the transposed copy at once does 1.0
        out_NW[:, byte] = numbers_NW[:count, byte]


def _decompress(frame: bytes, raw_bytes: int) -> bytes:
    try:
        declared = zstandard.frame_content_size(frame)
        if declared != raw_bytes:
            raise CorruptIncidentError(f"a frame declares {declared} bytes instead of {raw_bytes}")
        return _decompressor().decompress(
            frame, max_output_size=raw_bytes, read_across_frames=False, allow_extra_data=False
        )
    except zstandard.ZstdError as problem:
        raise CorruptIncidentError(f"a frame is damaged: {problem}") from problem


def _compressor() -> zstandard.ZstdCompressor:
    """Return this thread's own compressor: they are not to be shared."""
    made = getattr(_local, "compressor", None)
    if made is None:
        made = _local.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    return made


def _decompressor() -> zstandard.ZstdDecompressor:
    made = getattr(_local, "decompressor", None)
    if made is None:
        made = _local.decompressor = zstandard.ZstdDecompressor()
    return made
