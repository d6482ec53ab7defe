import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from flightrec.incident.migrate import FORMAT
from flightrec.incident.reader import open_incident
from flightrec.incident.writer import write
from flightrec.rng import Generators
from flightrec.structure import rebuild
from flightrec.trust import Trust
from tests.golden import make_v1

FILES = sorted(Path(__file__).parent.glob("incident-v*.h5"))


def versions():
    return [int(re.fullmatch(r"incident-v(\d+)", path.stem)[1]) for path in FILES]


def test_there_is_one_for_every_format():
    assert versions() == list(range(1, FORMAT + 1))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_build_reads_every_format(path):
    with open_incident(path, known=[make_v1.KEY]) as incident:
        assert incident.own
        assert incident.verify() == []
        assert incident.manifest["format"] == FORMAT
    with open_incident(path, known=[]) as incident:
        assert not incident.own


@pytest.fixture(scope="module", params=["committed", "written now"])
def v1(request, tmp_path_factory):
    path = FILES[0]
    if request.param == "written now":
        path = write(make_v1.capture(), tmp_path_factory.mktemp("now"), key=make_v1.KEY)
    with open_incident(path, known=[make_v1.KEY]) as incident:
        yield incident


def test_manifest(v1):
    assert v1.id == make_v1.ID
    assert v1.manifest["segment"]["exception"]["message"] == "made by \u00e4 hand"
    assert v1.manifest["site"] == ":loss:#0"
    assert v1.manifest["steps"][0]["scalars"] == {"accuracy": 0.75}
    assert v1.manifest["steps"][1]["loss"] == {"$": "float", "v": "nan"}
    assert v1.manifest["run"]["argv"] == ["train.py", "--fast"]
    assert v1.manifest["not_captured"][0]["what"] == "a generator"


def test_statistics(v1):
    sites, stats_TSK = v1.stats()
    assert sites == make_v1.SITES
    assert stats_TSK.tobytes() == make_v1.STATS_TSK.tobytes()


@pytest.mark.filterwarnings("ignore:.*experimental:UserWarning")
def test_raw_bytes_of_every_dtype(v1):
    found = {ref.dtype: n for n, ref in enumerate(v1.tensors) if ref.name.endswith(" 16")}
    assert len(found) >= 46
    for dtype, index in found.items():
        storage = v1.storage(v1.tensors[index].storage)
        assert storage.tobytes() == make_v1.raw_bytes(dtype).tobytes()
        kind = getattr(torch, dtype, None)
        if kind is not None and not dtype.startswith(("q", "bits")):
            tensor = v1.tensor(index)
            assert tensor.dtype is kind
            assert bytes(tensor.untyped_storage()) == storage.tobytes()


def test_a_storage_of_several_chunks(v1):
    assert np.array_equal(v1.tensor(len(v1.tensors) - 1).numpy(), make_v1.LONG)


def test_batch(v1):
    found, wanted = v1.batch(), make_v1.batch()
    assert list(found) == list(wanted)
    for name in ("x", "mask", "ids", "none of it"):
        assert found[name].dtype is wanted[name].dtype
        assert torch.equal(found[name], wanted[name])
    assert found["half"].view(torch.int16).tolist() == wanted["half"].view(torch.int16).tolist()
    for have, want in zip(found["rows"], wanted["rows"], strict=True):
        assert torch.equal(have, want)
        assert have.stride() == want.stride()
        assert have.untyped_storage().data_ptr() == found["x"].untyped_storage().data_ptr()
    assert found["again"] is found["x"]
    assert found["plain"] == wanted["plain"]
    assert found[3] == slice(1, None, 2)


def test_model_and_recorded_output(v1):
    load = v1.tensor_loader()
    root = rebuild(v1.manifest["model"]["roots"], load, Trust(own=True))[""]
    (call,) = v1.manifest["segment"]["calls"]
    (output,) = call["outputs"]
    wanted = load(output["tensor"])
    assert not root.training
    torch.testing.assert_close(root(make_v1.batch()["x"]).detach(), wanted)
    torch.testing.assert_close(make_v1.model()(make_v1.batch()["x"]).detach(), wanted)


def test_random_state(v1):
    before = Generators({}).read()
    try:
        state = Generators.decode(v1.manifest["segment"]["rng"], v1.tensor_loader())
        Generators({}).restore(state)
        drawn = random.random(), np.random.random(), torch.rand(1).item()
    finally:
        Generators({}).restore(before)
    assert drawn == (
        random.Random(1).random(),
        np.random.RandomState(2).random_sample(),
        torch.rand(1, generator=torch.Generator().manual_seed(3)).item(),
    )
