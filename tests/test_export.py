"""Exported files are what other programs expect, to the bit."""

import json
import stat
from dataclasses import replace

import numpy as np
import pytest

from flightrec.errors import CorruptIncidentError, StoreError, UsageError
from flightrec.export import CODES, export_incident
from flightrec.incident.layout import DTYPES
from flightrec.stores import open_store
from flightrec.testing.captures import make_capture
from flightrec.types import StorageData, TensorRef


@pytest.fixture
def export(tmp_path):
    """Write a capture, export it, and return the folder."""

    def exported(capture):
        store = open_store(tmp_path / "store")
        store.put(capture)
        with store.open(capture.id) as incident:
            export_incident(incident, tmp_path / "out")
        return tmp_path / "out"

    return exported


def container(path):
    """Read a safetensors file as its specification says."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    body = content[8 + length :]
    assert length % 8 == 0
    metadata = header.pop("__metadata__")
    ends = sorted(tuple(entry["data_offsets"]) for entry in header.values())
    assert all(isinstance(value, str) for value in metadata.values())
    assert [start for start, _ in ends] == [0, *(end for _, end in ends)][: len(ends)]
    assert (ends[-1][1] if ends else 0) == len(body)
    return {
        key: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for key, entry in header.items()
    }


def with_tensors(*tensors, **changes):
    """A capture whose tensors are (bytes, TensorRef fields)."""
    capture = make_capture(**changes)
    storages, refs = [], []
    for data, fields in tensors:
        number = -1 if data is None else len(storages)
        if data is not None:
            storages.append(StorageData(data=np.frombuffer(data, np.uint8), dtype=fields["dtype"]))
        defaults = {"offset": 0, "object": len(refs), "storage": number, "stride": ()}
        refs.append(TensorRef(**{**defaults, **fields}))
    return replace(capture, storages=tuple(storages), tensors=tuple(refs))


def segment(**changes):
    return {**make_capture().manifest["segment"], "batch": None, **changes}


def test_weights_and_step_go_into_their_files(export):
    out = export(make_capture(3))
    assert container(out / "weights.safetensors") == {
        "encoder.0.weight": ("F32", [2, 3], np.arange(6, dtype="<f4").tobytes())
    }
    assert container(out / "step.safetensors") == {
        "input/batch['x']": ("F32", [2, 2], np.full(4, 3, dtype="<f4").tobytes())
    }
    assert not (out / "earlier.safetensors").exists()
    for path in out.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_manifest_says_where_each_tensor_is(export):
    document = json.loads((export(make_capture()) / "incident.json").read_text())
    assert document["kind"] == "nan"
    assert document["exported"] == [
        {"tensor": 0, "file": "weights.safetensors", "key": "encoder.0.weight"},
        {"tensor": 1, "file": "step.safetensors", "key": "input/batch['x']"},
    ]
    assert document["not_exported"] == []


def test_views_become_contiguous(export):
    data = np.arange(12, dtype="<i4")
    transposed = {"dtype": "int32", "size": (2, 3), "stride": (1, 4), "offset": 1, "name": "t"}
    expanded = {"dtype": "int32", "size": (3, 2), "stride": (0, 1), "offset": 0, "name": "e"}
    scalar = {"dtype": "int32", "size": (), "stride": (), "offset": 11, "name": "s"}
    out = export(
        with_tensors(
            *((data.tobytes(), each) for each in (transposed, expanded, scalar)), segment=segment()
        )
    )
    found = container(out / "step.safetensors")
    assert found["value/t"][1:] == ([2, 3], data.reshape(3, 4)[:, 1:3].T.tobytes())
    assert found["value/e"][1:] == ([3, 2], np.tile(data[:2], 3).tobytes())
    assert found["value/s"][1:] == ([], data[11:].tobytes())


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_is_written_or_named(dtype, export):
    size = DTYPES[dtype].itemsize
    data = bytes(range(2 * size))
    out = export(
        with_tensors(
            (data, {"dtype": dtype, "size": (2,), "stride": (1,), "name": "x"}), segment=segment()
        )
    )
    if dtype in CODES:
        assert container(out / "step.safetensors")["value/x"] == (CODES[dtype], [2], data)
    else:
        (entry,) = json.loads((out / "incident.json").read_text())["not_exported"]
        assert dtype in entry["why"]


def test_empty_and_without_data(export):
    empty = (None, {"dtype": "float32", "size": (0, 4), "stride": (4, 1), "name": "empty"})
    meta = (None, {"dtype": "float32", "size": (2,), "stride": (1,), "name": "m", "device": "meta"})
    out = export(with_tensors(empty, meta, segment=segment()))
    assert container(out / "step.safetensors") == {"value/empty": ("F32", [0, 4], b"")}
    (entry,) = json.loads((out / "incident.json").read_text())["not_exported"]
    assert (entry["tensor"], "meta" in entry["why"]) == (1, True)


def test_equal_names_are_told_apart(export):
    one = np.zeros(1, dtype="<f4").tobytes()
    names = ["w", "w", "w#1", "__metadata__", ""]
    tensors = [
        (one, {"dtype": "float32", "size": (1,), "stride": (1,), "name": name, "role": "param"})
        for name in names
    ]
    found = container(export(with_tensors(*tensors, segment=segment())) / "weights.safetensors")
    assert sorted(found) == ["#4", "__metadata__#3", "w#0", "w#1", "w#1#2"]


def test_mixed_sizes_are_aligned(export):
    tensors = [
        (
            bytes(n),
            {"dtype": dtype, "size": (n // DTYPES[dtype].itemsize,), "stride": (1,), "name": dtype},
        )
        for dtype, n in (("uint8", 3), ("float64", 16), ("bool", 1), ("float16", 6))
    ]
    path = export(with_tensors(*tensors, segment=segment())) / "step.safetensors"
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    for dtype in ("float64", "float16"):
        start = header[f"value/{dtype}"]["data_offsets"][0]
        assert start % DTYPES[dtype].itemsize == 0


def test_earlier_steps_have_their_own_file(export):
    one, two, three = (np.full(1, n, dtype="<f4").tobytes() for n in range(3))
    fields = {"dtype": "float32", "size": (1,), "stride": (1,), "name": "batch", "role": "input"}
    buffer = {**fields, "name": "mean", "role": "buffer"}
    control = segment(step=5, batch={"$": "list", "v": [{"$": "tensor", "i": 0}]})
    call = {"state": {"buffers": {":mean": 2}, "attributes": {}}}
    newest = segment(batch={"$": "tensor", "i": 1}, calls=[_call(call)])
    out = export(
        with_tensors(
            (one, fields), (two, fields), (three, buffer), segment=newest, controls=[control]
        )
    )
    assert container(out / "earlier.safetensors") == {"5/input/batch": ("F32", [1], one)}
    assert sorted(container(out / "step.safetensors")) == ["buffer/mean", "input/batch"]


def _call(changes):
    return {
        "index": 0,
        "root": "",
        "module": "",
        "step": 7,
        "args": None,
        "kwargs": None,
        "rng": None,
        "training": [],
        "grad_enabled": True,
        "inference_mode": False,
        "autocast": [],
        "outputs": [],
        "raised": False,
        **changes,
    }


def test_nothing_is_overwritten(export, tmp_path):
    capture = make_capture()
    out = export(capture)
    before = {path: path.read_bytes() for path in out.iterdir()}
    with open_store(tmp_path / "store").open(capture.id) as incident:
        with pytest.raises(UsageError, match="another folder"):
            export_incident(incident, out)
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreError, match="cannot write"):
            export_incident(incident, tmp_path / "file" / "out")
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_changed_bytes_are_not_exported(tmp_path):
    store = open_store(tmp_path / "store")
    big = np.random.default_rng(0).integers(0, 255, 4000, dtype=np.uint8).tobytes()
    capture = with_tensors(
        (big, {"dtype": "uint8", "size": (4000,), "stride": (1,), "name": "x"}), segment=segment()
    )
    path = store.put(capture)
    content = bytearray(path.read_bytes())
    at = content.find(big[100:140])
    assert at > 0
    content[at] ^= 1
    path.write_bytes(content)
    with store.open(capture.id) as incident, pytest.raises(CorruptIncidentError):
        export_incident(incident, tmp_path / "out")
    assert not (tmp_path / "out" / "incident.json").exists()


def test_the_package_safetensors_reads_it(export):
    loader = pytest.importorskip("safetensors.torch")
    out = export(make_capture(3))
    assert loader.load_file(out / "weights.safetensors")["encoder.0.weight"].tolist() == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    assert loader.load_file(out / "step.safetensors")["input/batch['x']"].sum() == 12
