import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
import zstandard

from flightrec.errors import StoreError
from flightrec.incident import layout, writer
from flightrec.incident.codec import content_hash
from flightrec.incident.manifest import from_json
from flightrec.incident.writer import write
from flightrec.types import Site, StorageData
from tests.incident.captures import KEY, STEP, capture_of, ref_of, storage_of

posix = pytest.mark.skipif(os.name != "posix", reason="modes and signals of POSIX")
numbers = np.random.default_rng(0)


def by_hand(dataset):
    """Decode a dataset with zstd and numpy alone, as any other program would."""
    width = dataset.dtype.itemsize
    chunks = []
    for n in range(dataset.id.get_num_chunks()):
        info = dataset.id.get_chunk_info(n)
        _, frame = dataset.id.read_direct_chunk(info.chunk_offset)
        raw = zstandard.decompress(frame)
        planes = np.frombuffer(raw, np.uint8).reshape(width, -1)
        chunk = np.ascontiguousarray(planes.T).view(dataset.dtype).reshape(dataset.chunks)
        chunks.append((info.chunk_offset, chunk))
    whole = np.empty(dataset.shape, dataset.dtype)
    for offset, chunk in chunks:
        region = tuple(
            slice(o, min(o + c, s))
            for o, c, s in zip(offset, chunk.shape, dataset.shape, strict=True)
        )
        whole[region] = chunk[tuple(slice(0, s.stop - s.start) for s in region)]
    return whole


def test_another_program_finds_everything(tmp_path):
    weight = numbers.standard_normal((1300, 1025)).astype("f4")
    scalar = np.array(2.5)
    stats_TSK = numbers.standard_normal((1, 2, 10))
    capture = capture_of(
        weight,
        scalar,
        sites=(Site(module="a", kind="output"), Site(module="b", kind="param")),
        stats_TSK=stats_TSK,
        steps=[STEP],
    )
    path = write(capture, tmp_path, key=KEY)
    assert path == tmp_path / f"{capture.id}.h5"
    with h5py.File(path) as file:
        assert set(file) == {"manifest", "storages", "stats", "empty"}
        assert file.attrs["format"] == 1
        assert file.attrs["COMPLETE"] == 1
        assert file.attrs["id"].decode() == capture.id
        stored = file["storages/0"]
        assert stored.shape == weight.shape
        assert stored.dtype == "<f4"
        assert stored.chunks == (650, 1025)
        assert stored.attrs["name"].decode() == "tensor0"
        filters = stored.id.get_create_plist()
        assert [filters.get_filter(n)[:3] for n in range(filters.get_nfilters())] == [
            (2, 1, (4,)),
            (32015, 1, (3,)),
        ]
        assert by_hand(stored).tobytes() == weight.tobytes()
        assert by_hand(file["storages/1"]).tobytes() == scalar.tobytes()
        assert file["storages/1"].shape == (1,)
        assert file["storages/1"].attrs["shape"].shape == (0,)
        assert by_hand(file["stats"]).tobytes() == stats_TSK.tobytes()
        text = by_hand(file["manifest"]).tobytes()
        assert file.attrs["manifest_hash"].decode() == content_hash(text)
    manifest = from_json(text)
    assert manifest["storages"] == [
        {"bytes": weight.nbytes, "hash": content_hash(weight), "dtype": "float32"},
        {"bytes": 8, "hash": content_hash(scalar), "dtype": "float64"},
    ]
    assert manifest["sites"] == ["a:output:#0", "b:param:#0"]
    assert manifest["reason"] == capture.manifest["reason"]


def stored_of(tmp_path, storages, tensors=()):
    path = write(capture_of(storages=storages, tensors=tensors), tmp_path, key=None)
    with h5py.File(path) as file:
        return {
            int(name): (dataset.shape, dataset.dtype.str, dict(dataset.attrs))
            for name, dataset in file["storages"].items()
        }


def test_types_that_hdf5_lacks_are_raw_bits_with_a_name(tmp_path):
    raw = np.arange(16, dtype=np.uint8)
    kinds = ("bfloat16", "float8_e4m3fn", "bool", "complex64", "qint8", "float32")
    stored = stored_of(
        tmp_path, tuple(StorageData(data=raw + n, dtype=kind) for n, kind in enumerate(kinds))
    )
    assert {n: (shape, kind) for n, (shape, kind, _) in stored.items()} == {
        0: ((8,), "<u2"),
        1: ((16,), "|u1"),
        2: ((16,), "|u1"),
        3: ((2, 2), "<f4"),
        4: ((16,), "|i1"),
        5: ((4,), "<f4"),
    }
    assert [stored[n][2].get("torch_dtype", b"").decode() for n in stored] == [*kinds[:5], ""]


def test_complex_tensors_tell_their_own_shape(tmp_path):
    array = np.zeros((3, 2), "c8")
    stored = stored_of(tmp_path, (storage_of(array),), (ref_of(0, array),))
    assert stored[0][0] == (3, 2, 2)
    assert stored[0][2]["shape"].tolist() == [3, 2]


def test_only_a_tensor_that_fills_a_storage_gives_it_a_shape(tmp_path):
    array = np.arange(12, dtype="f4")
    views = (
        ref_of(0, array, size=(3, 3), stride=(3, 1)),
        ref_of(0, array, size=(3, 4), stride=(1, 3)),
        ref_of(0, array, size=(24,), stride=(1,), dtype="int16"),
        ref_of(0, array, size=(4, 1, 3), stride=(3, 99, 1), name="whole"),
    )
    assert stored_of(tmp_path, (storage_of(array),), views[:3])[0][0] == (12,)
    shape, _, attributes = stored_of(tmp_path, (storage_of(array),), views)[0]
    assert shape == (4, 1, 3)
    assert attributes["name"] == b"whole"


def test_bytes_that_are_no_whole_number_of_elements(tmp_path):
    stored = stored_of(tmp_path, (StorageData(data=np.arange(7, dtype=np.uint8), dtype="int32"),))
    assert stored[0][:2] == ((7,), "|u1")


def test_equal_bytes_are_stored_once(tmp_path):
    ones, other = np.ones(10, "f4"), np.full(10, 2, "f4")
    storages = tuple(map(storage_of, (ones, other, ones, ones.view("i4"), np.ones(11, "f4"))))
    path = write(capture_of(storages=storages), tmp_path, key=None)
    with h5py.File(path) as file:
        assert set(file["storages"]) == {"0", "1", "4"}


def test_storages_without_bytes_have_no_dataset(tmp_path):
    storages = (storage_of(np.zeros(0, "f4")), storage_of(np.ones(1, "f4")))
    assert set(stored_of(tmp_path, storages)) == {1}


def test_tensors_without_bytes_are_attributes(tmp_path):
    refs = (
        ref_of(-1, np.zeros((0, 3), "f4"), name="no rows"),
        ref_of(-1, np.zeros((2,), "f4"), device="meta", name="meta"),
    )
    path = write(capture_of(tensors=refs), tmp_path, key=None)
    with h5py.File(path) as file:
        assert dict(file["empty"].attrs) == {
            "0": b"float32 [0, 3] cpu no rows",
            "1": b"float32 [2] meta meta",
        }


@posix
def test_only_the_user_can_read_it(tmp_path):
    previous = os.umask(0)
    try:
        path = write(capture_of(), tmp_path, key=None)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_signature_only_with_a_key(tmp_path):
    for key, signed in ((KEY, True), (None, False)):
        with h5py.File(write(capture_of(), tmp_path, key=key)) as file:
            assert ("hmac" in file.attrs) is signed


def test_everything_is_on_disk_before_the_name_is(tmp_path, monkeypatch):
    events = []
    capture = capture_of(np.ones(5, "f4"))
    final = tmp_path / f"{capture.id}.h5"
    monkeypatch.setattr(os, "fsync", note(events, "fsync", final, os.fsync))
    monkeypatch.setattr(Path, "rename", note(events, "rename", final, Path.rename))
    write(capture, tmp_path, key=None)
    assert events == [("fsync", False), ("rename", False), ("fsync", True)]


def note(events, name, final, real):
    def call(*args):
        events.append((name, final.exists()))
        return real(*args)

    return call


def test_complete_is_set_when_all_the_rest_is_there(tmp_path, monkeypatch):
    seen = []
    real = writer.datasets.set_whole

    def spied(owner, name, value):
        if name == layout.COMPLETE:
            (path,) = tmp_path.iterdir()
            seen.append(layout.COMPLETE.encode() in path.read_bytes())
            seen.append(b"manifest_hash" in path.read_bytes())
        real(owner, name, value)

    monkeypatch.setattr(writer.datasets, "set_whole", spied)
    write(capture_of(np.ones(5, "f4")), tmp_path, key=KEY)
    assert seen == [False, True]


def refusal(capture, folder, error=StoreError):
    """Return what writing says; nothing must be left behind."""
    before = sorted(folder.iterdir()) if folder.is_dir() else None
    with pytest.raises(error) as caught:
        write(capture, folder, key=KEY)
    assert before == (sorted(folder.iterdir()) if folder.is_dir() else None)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_no_such_folder(tmp_path):
    assert "No such file or directory" in refusal(capture_of(), tmp_path / "missing")


def test_the_folder_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write" in refusal(capture_of(), tmp_path / "file")


def test_an_incident_is_never_overwritten(tmp_path):
    capture = capture_of(np.ones(3))
    path = write(capture, tmp_path, key=None)
    before = path.read_bytes()
    assert "never overwritten" in refusal(capture, tmp_path)
    assert path.read_bytes() == before


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(tmp_path):
    tmp_path.chmod(0o500)
    assert "Permission denied" in refusal(capture_of(), tmp_path)


def test_no_space_is_seen_before_anything_is_written(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=writer.RESERVE_BYTES + 99)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    message = refusal(capture_of(np.zeros(100, "u1")), tmp_path)
    assert re.search(
        r"1048676 bytes are needed \(1048576 of them stay free\), 1048675 are free", message
    )
    write(capture_of(np.zeros(99, "u1")), tmp_path, key=None)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from flightrec.errors import StoreError
from flightrec.incident.writer import write
from tests.incident.captures import capture_of
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
noise = np.random.default_rng(0).integers(0, 255, (40, 50_000), np.uint8)
capture = capture_of(*noise)
for limit in range(0, 2_000_000, 100_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write(capture, folder, key=b"k")
    except StoreError as refused:
        assert list(folder.iterdir()) == [], list(folder.iterdir())
        print(str(refused).splitlines()[0])
    else:
        print("written under", limit)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
write(capture, folder, key=b"k")
"""


@posix
def test_a_disk_that_fills_up_while_writing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("cannot write") == 20
    assert [path.suffix for path in tmp_path.iterdir()] == [".h5"]


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from flightrec.incident import writer
from tests.incident.captures import capture_of
real = writer.datasets.Block.write
def deadly(block, chunk, frame):
    real(block, chunk, frame)
    if chunk.start:
        os.kill(os.getpid(), signal.SIGKILL)
writer.datasets.Block.write = deadly
writer.write(capture_of(np.zeros((3, 2**20), "f4")), Path(sys.argv[1]), key=None)
"""


@posix
def test_a_process_killed_in_the_middle_leaves_nothing_that_looks_like_an_incident(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=100, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.suffix != layout.SUFFIX
    assert left.name.startswith(".")
    assert layout.is_stale(left, idle_s=0)


def test_an_interrupt_cleans_up_too(tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(writer.datasets.Block, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(capture_of(np.ones(3)), tmp_path, key=None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"id": "../evil"}, "not an id"),
        ({"storages": (StorageData(data=np.zeros(4, "u1"), dtype="float31"),)}, "float31"),
        ({"tensors": (ref_of(3, np.ones(1)),)}, "names a storage"),
        ({"storages": (storage_of(np.ones(1)),), "tensors": (ref_of(0, np.ones(2)),)}, "outside"),
        ({"kind": 3}, "wrong at kind"),
        ({"unheard_of": 3}, "'unheard_of' is not known"),
        ({"options": {"x": float("nan")}}, "JSON compliant"),
        ({"sites": (Site(module="", kind="loss"),)}, r"statistics of shape \(0, 0, 10\)"),
    ],
)
def test_a_capture_that_no_reader_would_take_is_a_fault_of_ours(tmp_path, changed, why):
    assert re.search(why, refusal(capture_of(**changed), tmp_path, ValueError))


def test_the_id_is_the_manifests(tmp_path):
    capture = capture_of()
    other = capture_of(id=capture.id)
    other.manifest["id"] = "another"
    assert "not the manifest's" in refusal(other, tmp_path, ValueError)


def test_memory_stays_within_a_few_chunks(tmp_path):
    capture = capture_of(*numbers.standard_normal((4, 2, 2**20)))
    tracemalloc.start()
    try:
        write(capture, tmp_path, key=None, threads=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 11 * layout.CHUNK_BYTES < sum(len(s.data) for s in capture.storages)


def frames_of(path):
    with h5py.File(path) as file:
        return {
            name: [
                dataset.id.read_direct_chunk(dataset.id.get_chunk_info(n).chunk_offset)
                for n in range(dataset.id.get_num_chunks())
            ]
            for name, dataset in (*file["storages"].items(), ("manifest", file["manifest"]))
        }


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_any_number_of_threads_gives_the_same_file(tmp_path, threads):
    arrays = [np.full((n, 1000), n % 7, "f4") for n in range(1, 40)]
    capture = capture_of(*arrays, id="same", storages=tuple(map(storage_of, arrays)))
    (tmp_path / "one").mkdir()
    (tmp_path / "more").mkdir()
    one = write(capture, tmp_path / "one", key=KEY, threads=1)
    more = write(capture, tmp_path / "more", key=KEY, threads=threads)
    assert frames_of(one) == frames_of(more)


def test_the_file_is_hardly_larger_than_its_frames(tmp_path):
    arrays = [numbers.standard_normal((64, 64)).astype("f4") for _ in range(60)]
    path = write(capture_of(*arrays), tmp_path, key=KEY)
    frames = sum(
        len(zstandard.compress(np.ascontiguousarray(a.reshape(-1).view("u1").reshape(-1, 4).T)))
        for a in arrays
    )
    assert path.stat().st_size < 1.05 * frames
