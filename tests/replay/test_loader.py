"""What an incident becomes, and what is said where it cannot become anything."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from flightrec import open_store
from flightrec.errors import CannotRebuildError, CodeMissingError, UsageError
from flightrec.trust import Trust
from replay.bits import same_bits
from replay.loader import device_here, models_of, prepare
from tests.replay import networks

CPU = torch.device("cpu")


@pytest.fixture
def opened(record):
    """Record with a loss and open the incident."""

    def run(loss_fn=networks.plain, **options):
        return open_store(record(loss_fn, **options)).open("latest")

    return run


def prepared(incident, **options):
    return prepare(incident, Trust(own=incident.own), device=CPU, **options)


def test_models_hold_the_recorded_weights(opened):
    found = prepared(opened())
    model = found.models[""]
    assert type(model) is networks.Net
    assert model.training
    assert model.calls == 3
    assert {name for name, _ in model.named_parameters()} == {
        name for name, _ in networks.Net().named_parameters()
    }
    assert found.step_fn is None
    assert found.notes == ()


def test_a_parameter_is_given_back_by_name(opened):
    found = prepared(opened())
    weight = found.models[""].head.weight
    recorded = weight.detach().clone()
    weight.data.zero_()
    assert same_bits(found.refresh(":head.weight"), recorded)
    with pytest.raises(CannotRebuildError, match=r":head\.nothing"):
        found.refresh(":head.nothing")


def test_calls_are_decoded_anew_each_time(opened):
    call = prepared(opened(networks.with_noise)).episode.calls[0]
    (x,), options = call.fresh()
    assert options == {"scale": 0.5}
    kept = x.clone()
    x.zero_()
    assert torch.equal(call.fresh()[0][0], kept)
    assert call.training
    assert call.buffers().keys() == {
        f":body.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    assert call.attributes == {":": {"calls": 2}}
    assert [output.leaf for output in call.outputs] == ["['out']", "['hidden']"]
    assert all(output.requires_grad and not output.changed for output in call.outputs)


def test_step_fn_comes_by_name(opened):
    found = prepared(opened(step_fn=networks.plain))
    assert found.step_fn is networks.plain
    assert found.episode.batch()["y"].shape == (6, 2)


def test_a_step_fn_that_is_gone_is_noted(opened, monkeypatch):
    incident = opened(step_fn=networks.plain)
    monkeypatch.delattr(networks, "plain")
    found = prepared(incident)
    assert found.step_fn is None
    assert any(note.startswith("step_fn is not used") for note in found.notes)


def test_without_weights_a_model_is_needed(opened):
    incident = opened(weights="none")
    with pytest.raises(CannotRebuildError, match=r"--model package\.module:factory"):
        prepared(incident)
    found = prepared(incident, model=networks.Net)
    assert "no weights were recorded; the given model keeps its own" in found.notes


def test_a_given_model_takes_weights_buffers_flags_and_counters(opened):
    incident = opened()
    rebuilt, given = prepared(incident).models[""], networks.Net().eval()
    found = prepared(incident, model=given)
    assert found.models[""] is given
    for name, tensor in rebuilt.state_dict().items():
        assert same_bits(tensor, given.state_dict()[name]), name
    assert given.calls == rebuilt.calls
    assert given.training


def test_weights_that_do_not_fit_are_named(opened):
    incident = opened()
    with pytest.raises(CannotRebuildError, match=r"body\.0\.weight is \(9, 4\) float32, recorded"):
        prepared(incident, model=networks.make_wide)
    with pytest.raises(CannotRebuildError, match=r"module 'body\.0' is missing"):
        prepared(incident, model=nn.Sequential())
    more = networks.Net()
    more.extra = nn.Linear(2, 2)
    with pytest.raises(CannotRebuildError, match="module 'extra' was not recorded"):
        prepared(incident, model=more)


def test_a_root_of_another_name_is_told(opened):
    incident = opened()
    incident.manifest["segment"]["calls"][0]["module"] = "decoder"
    with pytest.raises(CannotRebuildError, match="enters ':decoder'"):
        prepared(incident)


def test_ways_to_name_a_model():
    assert type(models_of("tests.replay.networks:make")[""]) is networks.Net
    assert type(models_of("tests.replay.networks:Net")[""]) is networks.Net
    pair = {"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)}
    assert models_of(lambda: pair) == pair
    for wrong in ("tests.replay.networks", ":make", "tests.replay.networks:"):
        with pytest.raises(UsageError, match=r"package\.module:factory"):
            models_of(wrong)
    with pytest.raises(UsageError, match="got int"):
        models_of("tests.replay.networks:make_nothing")
    for gone, what in (("tests.replay.networks:gone", "gone"), ("no_such:make", "no_such")):
        with pytest.raises(CodeMissingError, match=what):
            models_of(gone)


def test_a_model_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "my_factories").mkdir()
    for name in ("beside_me.py", "my_factories/inner.py"):
        (tmp_path / name).write_text(
            "from torch import nn\ndef make():\n    return nn.Identity()\n"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    for name in (
        "beside_me:make",
        "my_factories.inner:make",
        "beside_me.py:make",
        str(tmp_path / "my_factories" / "inner.py") + ":make",
    ):
        assert type(models_of(name)[""]) is nn.Identity
    with pytest.raises(CodeMissingError, match="not there"):
        models_of("gone.py:make")
    for name in ("beside_me", "my_factories.inner", "my_factories", "inner"):
        sys.modules.pop(name, None)


def test_devices():
    assert device_here("cpu") == CPU
    with pytest.raises(UsageError, match="there is cpu"):
        device_here("cuda:63")
    with pytest.raises(UsageError, match="meta"):
        device_here("meta")


def test_gaps_are_noted(opened):
    incident = opened()
    incident.manifest["not_captured"] = [{"what": "batch.file", "why": "an open file"}]
    assert prepared(incident).notes == ("not captured: batch.file: an open file",)
