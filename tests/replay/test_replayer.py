"""Incidents that a recorder wrote, replayed from the file alone."""

from __future__ import annotations

import importlib
import importlib.util
import json
import linecache
import logging
import sys

import pytest
import torch
from torch import nn

import replay
from flightrec import FlightRecorder, open_store
from flightrec.errors import UntrustedNameError, UsageError
from replay.fidelity import LEFT_OVER, OUTSIDE
from replay.verdict import exit_code, to_json
from tests.replay import networks

LAST = 2
"""Step that `record` captures."""


def evidence(verdict, kind):
    return [item.text for item in verdict.evidence if item.kind == kind]


def assert_exact(verdict):
    assert (verdict.fidelity, verdict.gradients, verdict.max_ulp) == ("bit_exact", "bit_exact", 0)
    assert verdict.first_divergence is None


@pytest.mark.parametrize(
    "loss_fn",
    [
        networks.plain,
        networks.with_noise,
        networks.two_calls,
        networks.slice_changed,
        networks.shared_autocast,
        networks.separate_autocast,
    ],
)
def test_replay_is_exact_without_the_loss_code(record, loss_fn):
    verdict = replay.load(record(loss_fn)).run()
    assert_exact(verdict)
    assert (verdict.status, verdict.kind) == ("reproduced", "manual")
    assert verdict.step == verdict.noticed_step == LAST
    assert evidence(verdict, "loss")


@pytest.mark.parametrize(
    ("loss_fn", "reason"),
    [
        (networks.weight_penalty, OUTSIDE),
        (networks.hooked, OUTSIDE),
        (networks.gradient_penalty, "create_graph=True"),
    ],
)
def test_gradients_by_another_path_are_unavailable(record, loss_fn, reason):
    verdict = replay.load(record(loss_fn)).run()
    assert (verdict.fidelity, verdict.gradients, verdict.max_ulp) == (
        "bit_exact",
        "unavailable",
        0,
    )
    assert reason in evidence(verdict, "gradients")[0]


def test_gradients_left_over_are_unavailable(record):
    verdict = replay.load(record(networks.plain, zero=False)).run()
    assert (verdict.fidelity, verdict.gradients) == ("bit_exact", "unavailable")
    assert evidence(verdict, "gradients") == [f"gradients: {LEFT_OVER}"]


@pytest.mark.parametrize(
    "loss_fn",
    [
        networks.plain,
        networks.with_noise,
        networks.weight_penalty,
        networks.hooked,
        networks.gradient_penalty,
        networks.two_calls,
        networks.slice_changed,
    ],
)
def test_step_fn_covers_every_path(record, loss_fn):
    verdict = replay.load(record(loss_fn, step_fn=loss_fn)).run()
    assert_exact(verdict)
    assert not evidence(verdict, "loss")


def test_replays_are_the_same_each_time_and_leave_no_trace(record):
    replayer = replay.load(record(networks.plain))
    state = torch.get_rng_state()
    first = replayer.engine.run(replayer.prepared.episode)
    second = replayer.engine.run(replayer.prepared.episode)
    assert all(torch.equal(first.gradients[k], second.gradients[k]) for k in first.gradients)
    assert torch.equal(state, torch.get_rng_state())
    for control in replayer.prepared.controls:
        assert replayer.engine.run(control).exception is None
    assert_exact(replayer.run())


def test_controls_are_the_healthy_steps_before(record):
    replayer = replay.load(record(networks.plain))
    controls = replayer.prepared.controls
    assert [control.step for control in controls] == [0, 1]
    x = networks.batch(1)["x"]
    assert torch.equal(controls[1].calls[0].fresh()[0][0], x)
    assert controls[1].batch()["y"].shape == (6, 2)


def test_two_models_by_name(tmp_path):
    torch.manual_seed(2)
    models = {"gen": networks.Generator(), "critic": networks.Net()}
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in models.values()]
    store = str(tmp_path / "store")
    with FlightRecorder(store, model=models, optimizer=optimizers) as recorder:
        for number in range(3):
            real = networks.batch(number)["x"]
            with recorder.step(real):
                fake = models["gen"](torch.randn(6, 3))
                optimizers[1].zero_grad()
                scores = models["critic"](real)["out"], models["critic"](fake.detach())["out"]
                (scores[1].mean() - scores[0].mean()).backward()
                optimizers[1].step()
                optimizers[0].zero_grad()
                optimizers[1].zero_grad()
                fake = models["gen"](torch.randn(6, 3))
                (-models["critic"](fake)["out"].mean()).backward()
                if number == 2:
                    recorder.capture("generator")
                optimizers[0].step()
    replayer = replay.load(store)
    assert_exact(replayer.run())
    assert [call.public_name for call in replayer.prepared.episode.calls] == ["gen", "critic"]


def test_micro_batches_over_several_steps(tmp_path):
    torch.manual_seed(3)
    model = networks.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    store = str(tmp_path / "store")
    with FlightRecorder(store, model=model, optimizer=optimizer) as recorder:
        for number in range(6):
            data = networks.batch(number)
            with recorder.step(data):
                (networks.plain(model, data) / 3).backward()
                if number % 3 == 2:
                    if number == 5:
                        recorder.capture("third micro-batch")
                    optimizer.step()
                    optimizer.zero_grad()
    replayer = replay.load(store)
    assert [call.step for call in replayer.prepared.episode.calls] == [3, 4, 5]
    assert_exact(replayer.run())


def test_inference(tmp_path):
    model = networks.Net().eval()
    store = str(tmp_path / "store")
    with FlightRecorder(store, model=model) as recorder:
        for number in range(3):
            with torch.inference_mode(), recorder.step(networks.batch(number)):
                model(networks.batch(number)["x"])
                if number == 2:
                    recorder.capture("look")
    verdict = replay.load(store).run()
    assert (verdict.fidelity, verdict.gradients) == ("bit_exact", "none")


def test_nan_of_a_batch_shows_again_and_is_found(record):
    def data(number):
        made = networks.batch(number)
        if number == LAST:
            made["x"][4, 1] = float("nan")
        return made

    replayer = replay.load(record(networks.plain, capture=False, data=data))
    verdict = replayer.run()
    assert_exact(verdict)
    assert (verdict.status, verdict.kind, exit_code(verdict)) == ("reproduced", "nan", 0)
    found = replayer.bisect()
    assert (found.phase, found.sample, found.step) == ("data", 4, LAST)
    assert found.status == "reproduced"
    assert json.loads(json.dumps(to_json(found), allow_nan=False))["sample"] == 4


def test_a_loss_outside_the_calls_stands_as_recorded(record):
    verdict = replay.load(record(networks.nan_loss, capture=False)).run()
    assert (verdict.status, verdict.kind) == ("reproduced", "nan")
    assert "the loss is as recorded" in evidence(verdict, "replay")[0]


def test_a_loss_that_step_fn_computes_is_seen(record):
    store = record(networks.nan_loss, step_fn=networks.nan_loss, capture=False)
    verdict = replay.load(store).run()
    assert (verdict.status, verdict.kind) == ("reproduced", "nan")
    assert evidence(verdict, "replay") == ["loss is nan again"]


def exception_store(tmp_path, loss_fn, model, **options):
    store = str(tmp_path / "store")
    with FlightRecorder(store, model=model, **options) as recorder:
        for rows in (6, 5, 3):
            data = networks.batch(rows, rows)
            try:
                with recorder.step(data):
                    if rows == 3 or loss_fn is not networks.raises_in_loss:
                        loss_fn(model, data)
            except LookupError:
                continue
    return store


def test_exception_inside_a_call(tmp_path):
    store = exception_store(tmp_path, lambda m, data: m(data["x"]), networks.Picky())
    replayer = replay.load(store)
    verdict = replayer.run()
    assert (verdict.status, verdict.kind) == ("reproduced", "exception")
    assert "LookupError: three is too few" in evidence(verdict, "replay")[0]
    assert replayer.bisect().module == ""


def test_exception_in_the_loss_code_takes_a_step_fn(tmp_path):
    store = exception_store(tmp_path, networks.raises_in_loss, networks.Net())
    verdict = replay.load(store).run()
    assert (verdict.status, exit_code(verdict)) == ("unsupported", 3)
    assert "give step_fn" in evidence(verdict, "replay")[0]


def test_exception_in_the_loss_code_with_step_fn(tmp_path):
    loss_fn = networks.raises_in_loss
    store = exception_store(tmp_path, loss_fn, networks.Net(), step_fn=loss_fn)
    assert replay.load(store).run().status == "reproduced"


def test_a_given_model_gets_the_recorded_weights(record):
    store = record(networks.plain)
    for model in (
        "tests.replay.networks:make",
        networks.make,
        networks.Net(),
        {"": networks.Net()},
    ):
        replayer = replay.load(store, model=model)
        assert_exact(replayer.run())
        assert any("given, not rebuilt" in note for note in replayer.notes)


def test_a_model_that_computes_something_else_diverges(record):
    store = record(networks.plain)
    replayer = replay.load(store, model="tests.replay.networks:make_other")
    verdict = replayer.run()
    assert (verdict.status, verdict.fidelity) == ("diverged", "diverged")
    assert verdict.first_divergence == ":output:['out']#0"
    assert exit_code(verdict) == 1
    assert evidence(verdict, "determinism") == [
        "two replays agree to the bit, so the difference lies between the machines or settings"
    ]


def test_what_cannot_be_found_is_told(record):
    store = record(networks.plain)
    found = replay.load(store).bisect()
    assert (found.status, found.phase) == ("reproduced", None)
    assert (exit_code(found), exit_code(found, searched=True)) == (0, 1)
    assert evidence(found, "search")


def test_a_loss_made_outside_is_a_finding(record):
    found = replay.load(record(networks.nan_loss, capture=False)).bisect()
    assert (found.status, found.phase, found.module) == ("reproduced", "loss", None)
    assert exit_code(found, searched=True) == 0


RATIO = """from torch import nn
class Ratio(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(3, 3, bias=False), nn.Linear(3, 2)
    def forward(self, x):
        y = self.before(x)
        return self.after(y / EXPRESSION)
"""


def test_changed_code_that_mends_it_gets_nobody_blamed(tmp_path, monkeypatch):
    file = tmp_path / "ratio_network.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def module(expression):
        file.write_text(RATIO.replace("EXPRESSION", expression))
        sys.modules.pop(file.stem, None)
        linecache.checkcache()
        importlib.invalidate_caches()
        spec = importlib.util.spec_from_file_location(file.stem, file)
        sys.modules[file.stem] = made = importlib.util.module_from_spec(spec)
        exec(compile(file.read_text(), str(file), "exec"), vars(made))
        return made

    model = module("y.norm()").Ratio()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    store = str(tmp_path / "store")
    with FlightRecorder(store, model=model, optimizer=optimizer) as recorder:
        for number in range(3):
            batch = torch.ones(4, 3) * (number < LAST)
            with recorder.step(batch):
                loss = model(batch).square().mean()
                recorder.loss(loss)
                loss.backward()
                optimizer.step()
    assert replay.load(store).bisect().op == "aten.div.Tensor"
    module("(y.norm() + 1)")
    replayer = replay.load(store)
    for found in (replayer.run(), replayer.bisect()):
        assert (found.status, found.fidelity, found.phase) == ("diverged", "diverged", None)
        assert not found.confirmed
        assert exit_code(found, searched=True) == 1
        assert evidence(found, "code") == [
            "the code has changed since: ratio_network:Ratio; the failure is gone"
        ]
        assert not any("machines" in item.text for item in found.evidence)
    sys.modules.pop(file.stem)


def test_no_such_device(record):
    store = record(networks.plain)
    with pytest.raises(UsageError, match=r"no device 'cuda:9' here; there is cpu"):
        replay.load(store, device="cuda:9")
    with pytest.raises(UsageError, match="no device 'nonsense'"):
        replay.load(store, device="nonsense")


def test_a_strangers_incident_needs_trust(record, tmp_path, monkeypatch):
    store = record(networks.plain)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    with pytest.raises(UntrustedNameError, match=r"tests\.replay\.networks:Net"):
        replay.load(store)
    assert_exact(replay.load(store, trust=("tests",)).run())


def test_places_an_incident_can_be_at(record):
    url = record(networks.plain)
    store = open_store(url)
    incident = store.ids()[-1]
    for place in (url, store, store.path(incident), store.open(incident)):
        assert replay.load(place).incident.id == incident
    assert replay.load(url, incident[:12]).incident.id == incident


def test_differences_are_noted_and_logged(record, monkeypatch, caplog):
    store = record(networks.plain)
    incident = open_store(store).open("latest")
    incident.manifest["environment"]["torch"] = "2.6.0"
    with caplog.at_level(logging.INFO, logger="flightrec"):
        replayer = replay.load(incident)
    text = f"torch: recorded 2.6.0, here {torch.__version__}"
    assert text in replayer.notes
    assert any(text in line for line in caplog.messages)
    assert not evidence(replayer.run(), "environment")


def test_settings_of_the_run_hold_during_the_replay_only(tmp_path):
    torch.manual_seed(4)
    model = nn.Linear(3, 2)
    store = str(tmp_path / "store")
    torch.set_default_dtype(torch.float64)
    try:
        with FlightRecorder(store, model=model) as recorder, recorder.step():
            model(torch.ones(2, 3, dtype=torch.float32))
            recorder.capture("look")
    finally:
        torch.set_default_dtype(torch.float32)
    replayer = replay.load(store)
    seen = []
    model = replayer.prepared.models[""]
    model.register_forward_hook(lambda *_: seen.append(torch.get_default_dtype()))
    assert replayer.run().fidelity == "bit_exact"
    assert seen == [torch.float64]
    assert torch.get_default_dtype() == torch.float32
