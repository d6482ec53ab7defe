import h5py
import numpy as np
import pytest
import zstandard
from h5py import h5p, h5s, h5t, h5z

from flightrec.errors import CorruptIncidentError
from flightrec.incident import codec, datasets, layout
from flightrec.incident.datasets import attribute, create_block, open_block, open_group

LIMIT = 1 << 20


@pytest.fixture
def file(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w", libver=layout.LIBVER) as opened:
        yield opened


def filled(file, shape, kind="<f4", name="x"):
    """Write a block as the writer does, and return what is in it."""
    numbers = np.random.default_rng(0).integers(0, 99, shape).astype(kind)
    data = numbers.reshape(-1).view(np.uint8)
    block = create_block(file, name, shape, kind)
    for chunk in block.chunks():
        part = data[chunk.start * block.width : (chunk.start + chunk.length) * block.width]
        block.write(chunk, codec.encode(part, block.width, block.chunk_bytes))
    return data


def read(file, kinds=("<f4",), limit=LIMIT, name="x"):
    block = open_block(file.id, name, kinds, max_bytes=limit)
    out = np.empty(block.nbytes, np.uint8)
    block.read(out)
    return out


@pytest.mark.parametrize("shape", [(1,), (7,), (30, 11), (3, 5, 7), (2, 1, 40)])
@pytest.mark.parametrize("kind", ["<f4", "|u1", "<f8"])
@pytest.mark.parametrize("most", [64, layout.CHUNK_BYTES])
def test_what_is_written_is_read(file, monkeypatch, shape, kind, most):
    monkeypatch.setattr(layout, "CHUNK_BYTES", most)
    data = filled(file, shape, kind)
    assert read(file, (kind,)).tobytes() == data.tobytes()


@pytest.mark.parametrize("shuffle", [True, False])
def test_what_h5py_alone_writes_is_read(file, shuffle):
    numbers = np.arange(50, dtype="<f4")
    file.create_dataset("x", data=numbers, chunks=(50,), shuffle=shuffle)
    assert read(file).tobytes() == numbers.tobytes()


def test_chunks_that_went_without_a_filter_are_read(file):
    numbers = np.arange(50, dtype="<f4")
    block = create_block(file, "x", (50,), "<f4")
    block.dataset.write_direct_chunk((0,), zstandard.compress(numbers.tobytes()), 0b01)
    assert read(file).tobytes() == numbers.tobytes()
    block.dataset.write_direct_chunk((0,), numbers.tobytes(), 0b11)
    assert read(file).tobytes() == numbers.tobytes()


def plain(file, **options):
    file.create_dataset("x", **{"shape": (8,), "chunks": (8,), "dtype": "<f4", **options})


def soft(file):
    plain(file)
    file["y"] = file["x"]
    del file["x"]
    file["x"] = h5py.SoftLink("/y")


def external_link(file):
    with h5py.File(file.filename + ".other", "w") as other:
        other["x"] = np.zeros(8, "<f4")
    file["x"] = h5py.ExternalLink(file.filename + ".other", "/x")


def external_storage(file):
    file.create_dataset("x", (8,), "<f4", external=[("/etc/passwd", 0, 32)])


def virtual(file):
    source = h5py.VirtualSource("/etc/hostname.h5", "x", shape=(8,))
    made = h5py.VirtualLayout(shape=(8,), dtype="<f4")
    made[:] = source
    file.create_virtual_dataset("x", made)


def committed(file):
    file["t"] = np.dtype([("a", "<f4")])
    plain(file, dtype=file["t"])


def missing_chunk(file):
    create_block(file, "x", (8,), "<f4")


def long_chunk(file):
    block = create_block(file, "x", (8,), "<f4")
    block.dataset.write_direct_chunk((0,), bytes(5000), 0)


def bomb(file):
    block = create_block(file, "x", (8,), "<f4")
    block.dataset.write_direct_chunk((0,), zstandard.compress(bytes(1 << 24)), 0)


def wrong_shuffle(file):
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_chunk((8,))
    properties.set_filter(layout.SHUFFLE, h5z.FLAG_OPTIONAL, (4, 4))
    properties.set_filter(layout.ZSTD, h5z.FLAG_OPTIONAL, (3,))
    h5py.h5d.create(
        file.id, b"x", h5t.IEEE_F32LE, h5s.create_simple((8,)), properties
    ).write_direct_chunk((0,), zstandard.compress(bytes(32)), 0)


def two_zstd(file):
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_chunk((8,))
    for _ in range(2):
        properties.set_filter(layout.ZSTD, h5z.FLAG_OPTIONAL, (3,))
    h5py.h5d.create(file.id, b"x", h5t.IEEE_F32LE, h5s.create_simple((8,)), properties)


HOSTILE = [
    (lambda file: None, "x is missing"),
    (soft, "x is a link to elsewhere"),
    (external_link, "x is a link to elsewhere"),
    (external_storage, "x is not chunked in this file"),
    (virtual, "x is not chunked in this file"),
    (lambda file: file.create_group("x"), "HDF5 says"),
    (lambda file: plain(file, chunks=None), "x is not chunked in this file"),
    (lambda file: plain(file, shape=(), chunks=None), "x is not chunked in this file"),
    (lambda file: plain(file, dtype="<f8"), "x does not hold <f4"),
    (lambda file: plain(file, dtype=">f4"), "x does not hold <f4"),
    (lambda file: plain(file, dtype=h5py.string_dtype()), "x does not hold <f4"),
    (committed, "x does not hold <f4"),
    (lambda file: plain(file, chunks=(4,)), r"x has chunks of \(4,\)"),
    (lambda file: plain(file, maxshape=(None,)), "x can grow"),
    (
        lambda file: plain(file, shape=(1 << 40,), chunks=(1 << 20,)),
        "x declares 4398046511104 bytes",
    ),
    (lambda file: plain(file, compression="gzip"), r"x has the filters \(1,\)"),
    (lambda file: plain(file, fletcher32=True), r"x has the filters \(3,\)"),
    (lambda file: plain(file, shuffle=True, compression="lzf"), r"x has the filters \(2, 32000\)"),
    (two_zstd, r"x has the filters \(32015, 32015\)"),
    (missing_chunk, r"the chunk at \(0,\) is missing or too long"),
    (long_chunk, r"the chunk at \(0,\) is missing or too long"),
    (bomb, "a frame declares 16777216 bytes instead of 32"),
]


@pytest.mark.parametrize(("make", "why"), HOSTILE, ids=range(len(HOSTILE)))
def test_what_a_strangers_file_may_not_have(file, make, why):
    make(file)
    with pytest.raises(CorruptIncidentError, match=why) as caught:
        read(file)
    assert "\n" not in str(caught.value)


def test_a_shuffle_of_another_width_is_refused(file):
    wrong_shuffle(file)
    filters = file["x"].id.get_create_plist()
    if filters.get_filter(0)[2] == (4,):
        pytest.skip("this HDF5 sets the width itself")
    with pytest.raises(CorruptIncidentError, match="shuffled by"):
        read(file)


def test_the_limit_is_the_callers(file):
    filled(file, (8,))
    assert len(read(file, limit=32)) == 32
    with pytest.raises(CorruptIncidentError, match="x declares 32 bytes, the most are 31"):
        read(file, limit=31)


def test_groups_must_be_there_and_firm(file):
    file.create_group("a")
    file["b"] = h5py.SoftLink("/a")
    file["c"] = 3
    open_group(file.id, "a")
    for name in ("b", "c", "d"):
        with pytest.raises(CorruptIncidentError):
            open_group(file.id, name)


def test_attributes_come_back(file):
    datasets.set_text(file.id, "text", "\u00e4 b")
    datasets.set_text(file.id, "empty", "")
    datasets.set_text(file.id, "long", "x" * 999)
    datasets.set_whole(file.id, "number", -3)
    datasets.set_whole(file.id, "list", (2, 3))
    assert attribute(file.id, "text") == "\u00e4 b"
    assert attribute(file.id, "empty") == ""
    assert attribute(file.id, "long") == "x" * 255
    assert attribute(file.id, "number") == -3
    assert attribute(file.id, "missing") is None
    assert file.attrs["list"].tolist() == [2, 3]
    assert file.attrs["text"].decode() == "\u00e4 b"


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        0.5,
        "variable",
        np.bytes_(b"x" * 5000),
        np.zeros(4000),
        h5py.Empty("i8"),
        np.array((1, 2), [("a", "i4"), ("b", "i4")]),
        h5py.Reference(),
    ],
    ids=range(8),
)
def test_attributes_of_other_kinds_are_refused(file, value):
    file.attrs["x"] = value
    with pytest.raises(CorruptIncidentError, match="not a number or a text"):
        attribute(file.id, "x")


@pytest.mark.parametrize(
    "fault", [OSError("a\n  b"), RuntimeError("a b"), KeyError("a b"), ValueError("a b")]
)
def test_what_h5py_raises_becomes_one_line(fault):
    with (
        pytest.raises(CorruptIncidentError, match=r"^HDF5 says: '?a b'?$"),
        datasets.damage_reported(),
    ):
        raise fault


def test_our_own_faults_pass():
    with pytest.raises(AttributeError), datasets.damage_reported():
        raise AttributeError("a bug")
