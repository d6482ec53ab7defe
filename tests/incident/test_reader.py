import copy
import json
import os
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flightrec.errors import (
    CorruptIncidentError,
    FlightrecError,
    IncidentNotFoundError,
    NewerFormatError,
    StoreError,
    UntrustedNameError,
)
from flightrec.incident import layout, reader, writer
from flightrec.incident.reader import open_incident
from flightrec.incident.writer import write
from flightrec.tree import Encoder, TensorTable
from flightrec.types import Site, StorageData
from tests.incident.captures import KEY, SEGMENT, STEP, capture_of, ref_of, storage_of
from tests.incident.test_schema import FULL, places

posix = pytest.mark.skipif(os.name != "posix", reason="files of POSIX")
numbers = np.random.default_rng(0)


def reopened(folder, capture, key=KEY):
    return open_incident(write(capture, folder, key=key), known=[KEY])


def test_what_was_captured_comes_back(tmp_path):
    arrays = (numbers.standard_normal((3, 5)).astype("f4"), np.array(7), numbers.random(2**20))
    stats_TSK = numbers.standard_normal((2, 1, 10))
    stats_TSK[0, 0, 3] = np.nan
    capture = capture_of(
        *arrays, sites=(Site(module="a.b", kind="loss"),), stats_TSK=stats_TSK, steps=[STEP, STEP]
    )
    with reopened(tmp_path, capture) as incident:
        assert incident.id == capture.id
        assert incident.path == tmp_path / f"{capture.id}.h5"
        assert repr(incident) == f"<Incident {capture.id}>"
        assert incident.own
        assert incident.tensors == list(capture.tensors)
        assert capture.manifest.items() <= incident.manifest.items()
        for index, array in enumerate(arrays):
            assert incident.storage(index).tobytes() == array.tobytes()
            assert torch.equal(incident.tensor(index), torch.from_numpy(np.asarray(array)))
        sites, stats = incident.stats()
        assert sites == capture.sites
        assert stats.tobytes() == stats_TSK.tobytes()
        assert incident.verify() == []
        assert incident.batch() is None


def test_an_empty_capture_comes_back(tmp_path):
    with reopened(tmp_path, capture_of(steps=[STEP])) as incident:
        assert incident.tensors == []
        sites, stats = incident.stats()
        assert sites == ()
        assert stats.shape == (1, 0, 10)
        assert incident.verify() == []


@pytest.mark.filterwarnings("ignore:.*experimental:UserWarning")
@pytest.mark.parametrize("name", sorted(layout.DTYPES))
def test_every_dtype_comes_back_to_the_bit(tmp_path, name):
    element = layout.DTYPES[name]
    raw = numbers.integers(0, 2 if name == "bool" else 256, 8 * element.itemsize, np.uint8)
    ref = ref_of(0, np.zeros(8), dtype=name)
    capture = capture_of(storages=(StorageData(data=raw, dtype=name),), tensors=(ref,))
    with reopened(tmp_path, capture) as incident:
        assert incident.storage(0).tobytes() == raw.tobytes()
        dtype = getattr(torch, name, None)
        if dtype is None or name.startswith(("q", "bits")):
            return
        tensor = incident.tensor(0)
        assert tensor.dtype is dtype
        assert bytes(tensor.untyped_storage()) == raw.tobytes()


def test_equal_is_not_tied_and_views_stay_views(tmp_path):
    ones = np.ones((4, 4), "f4")
    refs = (
        ref_of(0, ones, object=0, name="weight", requires_grad=True),
        ref_of(1, ones, object=1, name="running_var"),
        ref_of(0, ones, object=2, offset=4, size=(4,), stride=(1,)),
        ref_of(0, ones, object=3, stride=(1, 4)),
        ref_of(0, ones, object=4, dtype="int16", size=(32,), stride=(1,)),
        ref_of(0, ones, object=5, size=(3, 4), stride=(0, 1)),
    )
    capture = capture_of(storages=(storage_of(ones), storage_of(ones)), tensors=refs)
    with reopened(tmp_path, capture) as incident:
        load = incident.tensor_loader()
        weight, variance, row, turned, bits, wide = map(load, range(6))
        assert load(0) is weight
        assert weight.requires_grad
        assert not variance.requires_grad
        with torch.no_grad():
            weight[1, 0] = 5
        assert variance.sum() == 16
        assert row.tolist() == [5, 1, 1, 1]
        assert turned[0, 1] == 5
        assert turned.stride() == (1, 4)
        assert bits[8:10].view(torch.float32).item() == 5
        assert wide.shape == (3, 4)
        assert incident.tensor(0).sum() == 16
        assert incident.tensor_loader()(2).tolist() == [1, 1, 1, 1]


def test_tensors_without_bytes(tmp_path):
    refs = (
        ref_of(-1, np.zeros((0, 3), "f4"), stride=(3, 1)),
        ref_of(-1, np.zeros((2, 2), "f4"), device="meta", dtype="bfloat16"),
        ref_of(-1, np.zeros((2, 2), "f4")),
    )
    with reopened(tmp_path, capture_of(tensors=refs)) as incident:
        assert incident.tensor(0).shape == (0, 3)
        assert incident.tensor(1).is_meta
        assert incident.tensor(1).dtype is torch.bfloat16
        with pytest.raises(CorruptIncidentError, match="without a storage"):
            incident.tensor(2)
        for missing in (-1, 3):
            with pytest.raises(CorruptIncidentError):
                incident.tensor(missing)
            with pytest.raises(CorruptIncidentError, match="there is none such"):
                incident.storage(missing)


def test_tensors_lie_as_torch_would_lay_them(tmp_path):
    with reopened(tmp_path, capture_of(*np.ones((5, 3), "u1"))) as incident:
        load = incident.tensor_loader()
        assert all(load(n).data_ptr() % 64 == 0 for n in range(5))


def encoded(value):
    table = TensorTable()
    node = Encoder(table).encode(value)
    table.freeze()
    storages, tensors = table.export()
    return {
        "storages": storages,
        "tensors": tensors,
        "segment": {**SEGMENT, "batch": node},
    }


def test_the_batch_comes_back(tmp_path):
    x = torch.arange(6.0).reshape(2, 3)
    batch = {"x": x, "rows": [x[0], x[1]], "n": 3, "names": ("a", None), "f": float("inf")}
    with reopened(tmp_path, capture_of(**encoded(batch))) as incident:
        found = incident.batch()
        assert torch.equal(found["x"], x)
        assert found["rows"][1].data_ptr() == found["x"][1].data_ptr()
        assert {k: found[k] for k in ("n", "names", "f")} == {
            k: batch[k] for k in ("n", "names", "f")
        }
        assert incident.batch()["x"] is not found["x"]


class Own:
    """A class that nobody trusts."""


def test_a_batch_of_strange_classes_needs_trust(tmp_path):
    capture = capture_of(**encoded({"x": Own()}))
    with reopened(tmp_path, capture, key=b"a stranger's") as incident:
        assert not incident.own
        with pytest.raises(UntrustedNameError, match="Own"):
            incident.batch()


def test_whose_it_is(tmp_path, monkeypatch):
    path = write(capture_of(), tmp_path, key=KEY)
    unsigned = write(capture_of(), tmp_path, key=None)
    assert open_incident(path, known=[b"other", KEY]).own
    assert not open_incident(path, known=[b"other"]).own
    assert not open_incident(path, known=[]).own
    assert not open_incident(unsigned, known=[KEY, b""]).own
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FLIGHTREC_KEY", KEY.decode())
    assert open_incident(path).own
    monkeypatch.delenv("FLIGHTREC_KEY")
    assert not open_incident(path).own


def changed(path, change):
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def replaced(name, **options):
    def change(file):
        del file[name]
        file.create_dataset(name, **options)

    return change


def linked(name, link):
    def change(file):
        if isinstance(link, h5py.SoftLink):
            file.move(name, "elsewhere")
        else:
            del file[name]
        file[name] = link

    return change


def attributes(**values):
    def change(file):
        for name, value in values.items():
            if value is None:
                del file.attrs[name]
            else:
                file.attrs[name] = value

    return change


OPENING = [
    (attributes(COMPLETE=None), "it was never finished"),
    (attributes(COMPLETE=0), "it was never finished"),
    (attributes(format=None), "it is HDF5, but not an incident"),
    (attributes(format=0), "no such format: 0"),
    (attributes(format="one"), "its attribute format is not a number or a text"),
    (attributes(manifest_hash=np.bytes_(b"0" * 32)), "its manifest has changed"),
    (attributes(manifest_hash=None), "its attribute manifest_hash is missing"),
    (attributes(stats_hash=None), "its attribute stats_hash is missing"),
    (replaced("manifest", shape=(1 << 40,), dtype="u1", chunks=(4 << 20,)), "1099511627776 bytes"),
    (replaced("manifest", data=np.frombuffer(b"{}", "u1"), chunks=(2,)), "manifest has changed"),
    (replaced("manifest", shape=(5,), dtype="u1", chunks=(5,)), "the chunk at"),
    (lambda file: file.__delitem__("storages"), "storages is missing"),
    (lambda file: file.__delitem__("manifest"), "manifest is missing"),
    (linked("storages", h5py.SoftLink("/elsewhere")), "storages is a link to elsewhere"),
    (linked("manifest", h5py.SoftLink("/elsewhere")), "manifest is a link to elsewhere"),
]


@pytest.mark.parametrize(("change", "why"), OPENING, ids=range(len(OPENING)))
def test_what_is_refused_when_it_is_opened(tmp_path, change, why):
    path = changed(write(capture_of(np.ones(12, "f4")), tmp_path, key=KEY), change)
    with pytest.raises(CorruptIncidentError, match=why) as caught:
        open_incident(path, known=[KEY])
    assert str(caught.value).startswith(f"{path} cannot be read: ")
    assert "\n" not in str(caught.value)


READING = [
    (replaced("storages/0", shape=(1 << 40,), dtype="f4", chunks=(1 << 20,)), "4398046511104"),
    (replaced("storages/0", shape=(2,), dtype="f4", chunks=(2,)), "8 of 48 bytes"),
    (replaced("storages/0", shape=(12,), dtype="i4", chunks=(12,)), "does not hold <f4 or |u1"),
    (replaced("storages/0", data=np.zeros(12, "f4"), chunks=(12,)), "its bytes have changed"),
    (lambda file: file.__delitem__("storages/0"), "0 is missing"),
    (linked("storages/0", h5py.ExternalLink("other.h5", "/x")), "0 is a link to elsewhere"),
]


@pytest.mark.parametrize(("change", "why"), READING, ids=range(len(READING)))
def test_what_is_refused_when_it_is_read(tmp_path, change, why):
    ones = np.ones(12, "f4")
    capture = capture_of(ones, ones, np.ones(3))
    path = changed(write(capture, tmp_path, key=KEY), change)
    with open_incident(path, known=[KEY]) as incident:
        assert incident.own
        for number in (0, 1):  # the second has the bytes of the first
            with pytest.raises(CorruptIncidentError, match=why) as caught:
                incident.storage(number)
            assert str(caught.value).startswith(f"{path}: storage {number}: ")
            assert "\n" not in str(caught.value)
        with pytest.raises(CorruptIncidentError, match=why):
            incident.tensor(0)
        assert incident.storage(2).size == 24
        assert len(incident.verify()) == 2


def test_a_newer_format(tmp_path):
    path = changed(write(capture_of(), tmp_path, key=KEY), attributes(format=2))
    with pytest.raises(NewerFormatError, match=r"format 2, this build reads up to 1: pip install"):
        open_incident(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda file: file.__delitem__("stats"), "statistics: stats is missing"),
        (replaced("stats", data=np.zeros((1, 1, 10)), chunks=(1, 1, 10)), "they have changed"),
        (replaced("stats", data=np.zeros((1, 5, 1)), chunks=(1, 5, 1)), "they have the shape"),
        (replaced("stats", shape=(1, 1, 999), dtype="f8", chunks=(1, 1, 999)), "stats declares"),
    ],
)
def test_statistics_that_fit_no_manifest(tmp_path, change, why):
    site = Site(module="", kind="loss")
    capture = capture_of(sites=(site,), stats_TSK=np.ones((1, 1, 10)), steps=[STEP])
    path = changed(write(capture, tmp_path, key=KEY), change)
    with open_incident(path) as incident:
        with pytest.raises(CorruptIncidentError, match=why):
            incident.stats()
        (problem,) = incident.verify()
        assert re.search(why, problem)


def test_the_limit_can_be_set(tmp_path):
    path = write(capture_of(np.ones(12, "f4")), tmp_path, key=KEY)
    open_incident(path, max_bytes=48).close()
    with pytest.raises(CorruptIncidentError, match="declares 48 bytes of tensors, the most are 47"):
        open_incident(path, max_bytes=47)


def test_too_little_memory_is_the_machines_fault(tmp_path, monkeypatch):
    def full(*args):
        raise MemoryError

    with reopened(tmp_path, capture_of(np.ones(12, "f4"))) as incident:
        monkeypatch.setattr(reader.np, "empty", full)
        with pytest.raises(StoreError, match="48 bytes of memory are needed"):
            incident.storage(0)


def foreign(path, kind):
    if kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("not an incident\n" * 100)
    elif kind == "magic":
        path.write_bytes(reader.MAGIC)
    elif kind == "hdf5":
        with h5py.File(path, "w") as file:
            file["x"] = np.zeros(5)
    elif kind == "user block":
        with h5py.File(path, "w", userblock_size=512) as file:
            file.attrs["format"] = 1
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)


@posix
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("empty", "it is empty"),
        ("text", "it is not an HDF5 file"),
        ("magic", "HDF5 says"),
        ("hdf5", "it is HDF5, but not an incident"),
        ("user block", "it is not an HDF5 file"),
        ("folder", "it is not a file"),
        ("pipe", "it is not a file"),
    ],
)
def test_files_of_others(tmp_path, kind, why):
    foreign(tmp_path / "x.h5", kind)
    with pytest.raises(CorruptIncidentError, match=why) as caught:
        open_incident(tmp_path / "x.h5")
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "x.h5", tmp_path / "file" / "x.h5"):
        with pytest.raises(IncidentNotFoundError, match="no incident at"):
            open_incident(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read anything")
def test_no_permission(tmp_path):
    path = write(capture_of(), tmp_path, key=KEY)
    path.chmod(0)
    with pytest.raises(StoreError, match="Permission denied"):
        open_incident(path)


def test_it_is_closed(tmp_path):
    with reopened(tmp_path, capture_of(np.ones(3))) as incident:
        pass
    incident.close()
    assert incident.manifest["kind"] == "nan"
    with pytest.raises(CorruptIncidentError):
        incident.storage(0)


@posix
def test_a_refused_file_is_not_kept_open(tmp_path):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc")
    path = changed(write(capture_of(), tmp_path, key=KEY), attributes(COMPLETE=0))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(CorruptIncidentError):
            open_incident(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """An incident with a bit of everything, its bytes and what is in it."""
    arrays = (numbers.random((3, 5)), np.ones(4, "f4"), np.ones(4, "f4"), np.array(3))
    capture = capture_of(
        *arrays,
        sites=(Site(module="a.b", kind="loss"),),
        stats_TSK=np.ones((1, 1, 10)),
        steps=[STEP],
    )
    path = write(capture, tmp_path_factory.mktemp("sample"), key=KEY)
    with open_incident(path) as incident:
        return path.read_bytes(), contents(incident)


def contents(incident):
    storages = [incident.storage(n).tobytes() for n in range(len(incident.manifest["storages"]))]
    sites, stats = incident.stats()
    return incident.manifest, storages, sites, stats.tobytes()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damage_is_noticed_or_does_not_matter(sample, tmp_path_factory, data):
    good, expected = sample
    path = tmp_path_factory.getbasetemp() / "damaged.h5"
    path.write_bytes(data.draw(damaged(good)))
    refused = ""
    try:
        with open_incident(path, known=[KEY]) as incident:
            assert contents(incident) == expected
            assert incident.verify() == []
    except (CorruptIncidentError, NewerFormatError) as problem:
        refused = str(problem)
    assert "\n" not in refused


@st.composite
def damaged(draw, good):
    kind = draw(st.sampled_from(["cut", "flip", "flip", "fill", "insert", "swap"]))
    where = draw(st.integers(0, len(good) - 1))
    length = draw(st.integers(1, 64))
    if kind == "cut":
        return good[:where]
    if kind == "flip":
        return flipped(good, where, draw(st.integers(0, 7)))
    if kind == "fill":
        part = draw(st.sampled_from([b"\0", b"\xff"])) * length
        return (good[:where] + part + good[where + length :])[: len(good)]
    if kind == "insert":
        return good[:where] + draw(st.binary(min_size=1, max_size=9)) + good[where:]
    return good[:where] + good[where + length :] + good[where : where + length]


def flipped(good, where, bit):
    bad = bytearray(good)
    bad[where] ^= 1 << bit
    return bytes(bad)


def forged(folder, manifest):
    """Write a file whose manifest nobody checked, with a hash and a signature that are right."""

    def to_json(made):
        return json.dumps({**manifest, "id": made["id"], "storages": made["storages"]}).encode()

    capture = capture_of(storages=(storage_of(np.ones(12, "f4")),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "to_json", to_json)
        patch.setattr(writer, "check", lambda manifest: None)
        return write(capture, folder, key=KEY)


strange = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1,
        2**31,
        2**63,
        10**40,
        0.5,
        1e308,
        "",
        "float32",
        "../x",
        "\x00",
        "\x1b[2J",
    ]
    + [[], {}, [[]], {"$": "tensor", "i": 9}, {"$": "ref", "id": 3}, {"$": "list", "v": 3}]
    + [{"$": "function", "name": "os:system"}, {"$": "tensor", "i": 0}, [0] * 40]
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_forged_manifest_is_refused_or_harmless(tmp_path_factory, data):
    manifest = json.loads(json.dumps(FULL))
    for _ in range(data.draw(st.integers(1, 3))):
        known = [path for path in places(manifest) if path and path != ("storages",)]
        *parents, last = data.draw(st.sampled_from(known))
        holder = manifest
        for part in parents:
            holder = holder[part]
        holder[last] = copy.deepcopy(data.draw(strange))
    path = forged(tmp_path_factory.getbasetemp(), manifest)
    refused = ""
    try:
        with open_incident(path, known=[KEY], max_bytes=1 << 30) as incident:
            load = incident.tensor_loader()
            for index, ref in enumerate(incident.tensors):
                assert load(index).shape == ref.size
            incident.batch()
            incident.stats()
    except FlightrecError as problem:
        refused = str(problem)
    path.unlink()
    assert "\n" not in refused


SWEEP = """
import resource, signal, sys
from pathlib import Path
from flightrec.errors import CorruptIncidentError, NewerFormatError
from flightrec.incident.reader import open_incident

path, stride = Path(sys.argv[1]), int(sys.argv[2])
good, work = path.read_bytes(), path.with_suffix(".damaged")
def contents(incident):
    storages = [incident.storage(n).tobytes() for n in range(4)]
    return incident.manifest, storages, incident.stats()[1].tobytes()

with open_incident(path) as incident:
    expected = contents(incident)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
counts = dict(same=0, refused=0)
for where in range(0, len(good), stride):
    for kind in ("cut", "flip", "zero"):
        bad = bytearray(good[:where] if kind == "cut" else good)
        if kind != "cut":
            bad[where] = 0 if kind == "zero" else bad[where] ^ (1 << where % 8)
        work.write_bytes(bad)
        signal.alarm(10)
        try:
            with open_incident(work) as incident:
                assert contents(incident) == expected, (kind, where)
                assert incident.verify() == [], (kind, where)
            assert kind != "cut", where
            counts["same"] += 1
        except (CorruptIncidentError, NewerFormatError) as refused:
            assert len(str(refused).splitlines()) == 1, refused
            counts["refused"] += 1
print(counts)
"""


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory need /proc")
def test_damage_anywhere_never_crashes_hangs_or_eats_memory(sample, tmp_path):
    good, _ = sample
    path = tmp_path / "good.h5"
    path.write_bytes(good)
    stride = max(1, len(good) // 200)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SWEEP, str(path), str(stride)],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    assert eval(done.stdout)["refused"] > 200
