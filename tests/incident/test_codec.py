import hashlib
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from flightrec.errors import CorruptIncidentError
from flightrec.incident import codec
from flightrec.incident.layout import SHUFFLE, ZSTD

WIDTHS = st.sampled_from([1, 2, 4, 8])


def decoded(frame, width, chunk_bytes, count, mask=0):
    out = np.empty(count * width, np.uint8)
    numbers = codec.decode(frame, codec.pipeline(width), mask, width, chunk_bytes)
    codec.unshuffle(numbers, out)
    return out


@given(width=WIDTHS, data=st.binary(max_size=400), padding=st.integers(0, 50))
def test_what_goes_in_comes_out(width, data, padding):
    count = len(data) // width
    raw = np.frombuffer(data[: count * width], np.uint8)
    chunk_bytes = (count + padding) * width
    if chunk_bytes == 0:
        return
    frame = codec.encode(raw, width, chunk_bytes)
    assert decoded(frame, width, chunk_bytes, count).tobytes() == raw.tobytes()


@pytest.mark.parametrize("kind", ["<f4", "<f8", "<i2", "<u8"])
def test_the_shuffle_is_that_of_hdf5(kind, tmp_path):
    numbers = np.random.default_rng(0).integers(0, 255, 4000, np.uint8).view(kind)
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        dataset = file.create_dataset("x", data=numbers, chunks=numbers.shape, shuffle=True)
        _, theirs = dataset.id.read_direct_chunk((0,))
    width = numbers.itemsize
    ours = codec.encode(numbers.view(np.uint8), width, numbers.nbytes)
    assert zstandard.decompress(ours) == theirs
    out = np.empty(numbers.nbytes, np.uint8)
    codec.unshuffle(codec.decode(theirs, (SHUFFLE,), 0, width, numbers.nbytes), out)
    assert out.tobytes() == numbers.tobytes()


@pytest.mark.parametrize("mask", [0b00, 0b01, 0b10, 0b11])
def test_a_chunk_may_go_without_filters(mask):
    numbers = np.arange(100, dtype="<f4")
    data = numbers.tobytes()
    if not mask & 1:
        data = np.frombuffer(data, np.uint8).reshape(-1, 4).T.tobytes()
    if not mask & 2:
        data = zstandard.compress(data)
    assert decoded(data, 4, 400, 100, mask).tobytes() == numbers.tobytes()


def test_frames_declare_their_size_and_padding_is_zero():
    frame = codec.encode(np.frombuffer(b"abcdefgh", np.uint8), 4, 16)
    assert zstandard.frame_content_size(frame) == 16
    assert zstandard.decompress(frame) == b"ae\0\0bf\0\0cg\0\0dh\0\0"


def bomb(size):
    return zstandard.compress(bytes(size))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"junk that is no frame",
        zstandard.compress(bytes(399)),
        zstandard.compress(bytes(401)),
        zstandard.compress(bytes(400)) + b"more",
        zstandard.compress(bytes(400)) * 2,
        zstandard.compress(bytes(400))[:-1],
        zstandard.ZstdCompressor(write_content_size=False).compress(bytes(400)),
        b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd",
        bomb(1 << 26),
    ],
)
def test_frames_that_do_not_hold_the_chunk(frame):
    with pytest.raises(CorruptIncidentError, match=r"frame|chunk"):
        codec.decode(frame, (SHUFFLE, ZSTD), 0, 4, 400)


def test_a_frame_that_lies_about_its_size_allocates_nothing():
    honest = bomb(1 << 28)
    assert honest[4] == 0x80  # a byte for the window follows, then four for the size
    lying = honest[:6] + (400).to_bytes(4, "little") + honest[10:]
    assert zstandard.frame_content_size(lying) == 400
    tracemalloc.start()
    try:
        for frame in (honest, lying):
            with pytest.raises(CorruptIncidentError):
                codec.decode(frame, (ZSTD,), 0, 1, 400)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_chunks_without_compression_must_have_the_size():
    with pytest.raises(CorruptIncidentError, match="holds 3 bytes instead of 8"):
        codec.decode(b"abc", (), 0, 1, 8)


@given(data=st.binary(max_size=300))
def test_no_frame_is_larger_than_the_bound(data):
    if data:
        frame = codec.encode(np.frombuffer(data, np.uint8), 1, len(data))
        assert len(frame) <= codec.largest_frame(len(data))


def test_incompressible_chunks_stay_below_the_bound():
    noise = np.random.default_rng(0).integers(0, 255, 1 << 22, np.uint8)
    assert len(codec.encode(noise, 4, 1 << 22)) <= codec.largest_frame(1 << 22)


def test_threads_do_not_share_compressors():
    parts = [np.random.default_rng(n).integers(0, 9, 40_000, np.uint8) for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        frames = list(pool.map(lambda part: codec.encode(part, 4, 40_000), parts))
    for part, frame in zip(parts, frames, strict=True):
        assert decoded(frame, 4, 40_000, 10_000).tobytes() == part.tobytes()


def test_the_hash_is_blake2b_of_16_bytes():
    data = np.arange(10, dtype="<f4")
    assert codec.content_hash(data) == hashlib.blake2b(data.tobytes(), digest_size=16).hexdigest()
