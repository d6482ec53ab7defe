"""What a recorder does around real loops: notices, keeps, stays out of the way."""

import copy
import logging
import math
import pickle
import threading
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

import flightrec
from flightrec import FlightRecorder, IncidentError, open_store


@dataclass
class Pair:
    a: torch.Tensor
    b: list


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inp, self.norm = nn.Linear(4, width), nn.BatchNorm1d(width)
        self.drop, self.out = nn.Dropout(0.2), nn.Linear(width, 3)

    def forward(self, x, scale=1.0):
        return self.out(self.drop(torch.relu(self.norm(self.inp(x))))) * scale


def batches(n, bad=(), size=6):
    g = torch.Generator().manual_seed(0)
    for i in range(n):
        x = torch.randn(size, 4, generator=g)
        if i in bad:
            x[2, 1] = math.nan
        yield {"x": x, "y": torch.randint(0, 3, (size,), generator=g)}


def make(seed=0, lr=0.05):
    torch.manual_seed(seed)
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def train(recorder, model, optimizer, data, during=None):
    losses = []
    for number, batch in enumerate(data):
        with recorder.step(batch):
            loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
            recorder.loss(loss)
            optimizer.zero_grad()
            loss.backward()
            if during is not None:
                during(number)
            optimizer.step()
            losses.append(loss.item())
    return losses


def insist_finite(out):
    if not out.isfinite().all():
        raise ValueError("loss is nan")


def hooks():
    return (
        len(torch_module._global_forward_pre_hooks),
        len(torch_module._global_forward_hooks),
        len(torch_optimizer._global_optimizer_pre_hooks),
        len(torch_optimizer._global_optimizer_post_hooks),
    )


def manifests(store):
    opened = open_store(str(store))
    return [opened.open(incident).manifest for incident in opened.ids()]


def test_a_bad_batch_makes_one_incident_with_kind_step_and_site(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        train(recorder, model, optimizer, batches(8, bad=[4]))
    (manifest,) = manifests(tmp_path)
    assert recorder.incidents == [manifest["id"]]
    assert (manifest["kind"], manifest["step"], manifest["detector"]) == ("nan", 4, "nonfinite")
    assert manifest["site"] == ":output:#0"
    assert [control["step"] for control in manifest["controls"]] == [0, 1, 2, 3]
    assert len(manifest["segment"]["calls"]) == 1
    assert len(manifest["segment"]["backwards"]) == 1
    assert {g["parameter"] for g in manifest["segment"]["gradients"]} == {
        f":{name}" for name, _ in model.named_parameters()
    }


def test_a_recorded_run_is_bit_identical_to_the_same_run_without(tmp_path):
    model, optimizer = make()
    plain = train(FlightRecorderOff(), model, optimizer, batches(12))
    state = torch.get_rng_state()
    recorded_model, recorded_optimizer = make()
    with FlightRecorder(tmp_path, model=recorded_model, optimizer=recorded_optimizer) as recorder:
        recorded = train(recorder, recorded_model, recorded_optimizer, batches(12))
    assert recorded == plain
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(
        model.state_dict().values(), recorded_model.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)
    assert recorder.incidents == []


class FlightRecorderOff:
    def step(self, batch):
        return nullcontext()

    def loss(self, loss):
        return None


def test_no_hook_and_no_thread_is_left(tmp_path):
    before = hooks()
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        assert hooks() != before
        train(recorder, model, optimizer, batches(3, bad=[1]))
    assert hooks() == before
    assert not [one for one in threading.enumerate() if one.name.startswith("flightrec")]
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_copies_and_pickles_made_while_recording_are_clean(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:

        def during(number):
            if number == 1:
                twin = copy.deepcopy(model)
                pickle.loads(pickle.dumps(model))
                torch.save(model.state_dict(), tmp_path / "model.pt")
                twin(torch.full((2, 4), math.nan))  # a copy is not the recorded model

        train(recorder, model, optimizer, batches(3), during)
    assert recorder.incidents == []


def test_an_exception_that_leaves_the_step_is_an_incident_and_still_raised(tmp_path):
    model, optimizer = make()
    with (
        FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder,
        pytest.raises(RuntimeError, match="shapes cannot be multiplied"),
        recorder.step(torch.ones(2, 5)),
    ):
        model(torch.ones(2, 5))
    (manifest,) = manifests(tmp_path)
    assert manifest["kind"] == "exception"
    assert manifest["segment"]["exception"]["type"] == "RuntimeError"
    assert manifest["segment"]["calls"][0]["raised"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_being_told_to_stop_is_no_incident(tmp_path, kind):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        with pytest.raises(kind), recorder.step():
            raise kind
        train(recorder, model, optimizer, batches(2))
    assert recorder.incidents == []


def test_an_exception_caught_inside_the_step_is_none(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        with recorder.step():
            with pytest.raises(RuntimeError):
                model(torch.ones(2, 5))
            model(torch.ones(2, 4)).sum().backward()
        assert recorder.incidents == []
        train(recorder, model, optimizer, batches(2))
    assert recorder.incidents == []


def test_the_users_own_check_for_nan_does_not_hide_the_kind(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        for batch in batches(4, bad=[3]):
            with suppress(ValueError), recorder.step(batch):
                insist_finite(model(batch["x"]))
    (manifest,) = manifests(tmp_path)
    assert manifest["kind"] == "nan"
    assert manifest["segment"]["exception"]["message"] == "loss is nan"


def test_keyword_arguments_and_nested_inputs_are_kept(tmp_path):
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, *, pair, flag):
            return {"out": self.lin(pair.a) + pair.b[0]["z"], "flag": flag}

    model = Wide()
    with FlightRecorder(tmp_path, model=model) as recorder, recorder.step():
        model(pair=Pair(torch.ones(1, 2), [{"z": torch.full((1, 2), math.inf)}]), flag=True)
    (manifest,) = manifests(tmp_path)
    assert manifest["kind"] == "inf"
    assert manifest["segment"]["calls"][0]["outputs"][0]["leaf"] == "['out']"
    assert "z" in str(manifest["segment"]["calls"][0]["kwargs"])


def test_submodules_entered_from_outside_open_calls(tmp_path):
    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)

        def decode(self, z):
            return self.decoder(z)

    model = Vae()
    with FlightRecorder(tmp_path, model=model) as recorder, recorder.step():
        model.decode(model.encoder(torch.full((1, 4), math.nan)))
    (manifest,) = manifests(tmp_path)
    assert [c["module"] for c in manifest["segment"]["calls"]] == ["encoder", "decoder"]


def test_two_models_two_optimizers_and_segments(tmp_path):
    torch.manual_seed(0)
    g, d = nn.Linear(2, 2), nn.Linear(2, 1)
    g_opt, d_opt = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (g, d))
    with FlightRecorder(
        tmp_path, model={"G": g, "D": d}, optimizer={"G": g_opt, "D": d_opt}
    ) as recorder:
        for number in range(4):
            with recorder.step(torch.ones(3, 2)):
                d_opt.zero_grad()
                d(g(torch.ones(3, 2)).detach()).mean().backward()
                d_opt.step()
                g_opt.zero_grad()
                out = d(g(torch.ones(3, 2)))
                (out.mean() * (math.nan if number == 3 else 1.0)).backward()
                g_opt.step()
    (manifest,) = manifests(tmp_path)
    calls = manifest["segment"]["calls"]
    assert [(c["root"], c["module"]) for c in calls] == [("G", ""), ("D", "")]
    assert manifest["site"].startswith(("G:param_grad", "D:param_grad"))


def test_a_scaler_that_skips_stays_silent_and_one_that_does_not_speaks(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        for number, batch in enumerate(batches(6)):
            with recorder.step(batch):
                loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
                recorder.loss(loss)
                optimizer.zero_grad()
                (loss * (math.inf if number in (0, 1, 5) else 1)).backward()
                if number not in (0, 1):  # what a GradScaler does
                    optimizer.step()
    (manifest,) = manifests(tmp_path)
    assert manifest["step"] == 5


def test_steps_that_stay_bad_are_counted_not_written(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        train(recorder, model, optimizer, batches(9, bad=[2]))
    assert len(recorder.incidents) == 1


def test_inference_without_optimizer_reports_each_new_place_once(tmp_path):
    model, _ = make()
    model.eval()
    with FlightRecorder(tmp_path, model=model) as recorder:
        for batch in batches(9, bad=[2, 3, 6]):
            with recorder.step(batch), torch.inference_mode():
                model(batch["x"])
    (manifest,) = manifests(tmp_path)
    assert manifest["step"] == 2
    assert manifest["segment"]["calls"][0]["inference_mode"]


def test_capture_on_request_inside_a_step_and_between_steps(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        ids = []

        def during(number):
            if number == 1:
                ids.append(recorder.capture("look at this"))

        train(recorder, model, optimizer, batches(3), during)
        ids.append(recorder.capture("and the next"))
        train(recorder, model, optimizer, batches(1))
    first, second = manifests(tmp_path)
    assert [first["id"], second["id"]] == ids == recorder.incidents
    assert (first["kind"], first["reason"], first["step"]) == ("manual", "look at this", 1)
    assert (second["kind"], second["step"]) == ("manual", 3)
    assert first["segment"]["gradients"]


def test_capture_after_the_update_takes_the_next_segment_and_says_so(tmp_path, caplog):
    model, optimizer = make()
    with (
        caplog.at_level(logging.INFO, "flightrec"),
        FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder,
    ):
        for batch in batches(3):
            with recorder.step(batch):
                optimizer.zero_grad()
                model(batch["x"]).sum().backward()
                optimizer.step()
                if recorder._next == 2:
                    recorder.capture("late")
    (manifest,) = manifests(tmp_path)
    assert manifest["step"] == 2
    assert any("weights have changed" in record.getMessage() for record in caplog.records)


def test_on_incident_raise_names_the_command(tmp_path):
    model, optimizer = make()
    with (
        FlightRecorder(tmp_path, model=model, optimizer=optimizer, on_incident="raise") as recorder,
        pytest.raises(IncidentError, match="flightrec bisect"),
    ):
        train(recorder, model, optimizer, batches(4, bad=[1]))
    assert len(manifests(tmp_path)) == 1


def test_on_incident_skip_keeps_the_weights_healthy(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer, on_incident="skip") as recorder:
        losses = train(recorder, model, optimizer, batches(6, bad=[2]))
    assert [math.isnan(loss) for loss in losses] == [False, False, True, False, False, False]
    assert all(p.isfinite().all() for p in model.parameters())
    assert len(recorder.incidents) == 1


def test_on_incident_callable_gets_the_incident_from_disk(tmp_path):
    model, optimizer = make()
    seen = []
    with FlightRecorder(
        tmp_path,
        model=model,
        optimizer=optimizer,
        on_incident=lambda incident: seen.append(incident.manifest["kind"]),
    ) as recorder:
        train(recorder, model, optimizer, batches(4, bad=[1]))
    assert seen == ["nan"]


def test_a_second_recorder_on_the_same_model_is_refused_in_one_line(tmp_path):
    model, _ = make()
    with (
        FlightRecorder(tmp_path, model=model),
        pytest.raises(ValueError, match="already being recorded"),
        FlightRecorder(tmp_path, model=model),
    ):
        pass
    with FlightRecorder(tmp_path, model=model):
        pass


def test_switched_off_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTREC_DISABLE", "1")
    before = hooks()
    model, optimizer = make()
    with FlightRecorder(tmp_path / "store", model=model, optimizer=optimizer) as recorder:
        assert hooks() == before
        train(recorder, model, optimizer, batches(3, bad=[1]))
        assert recorder.capture("x") == ""
    assert not (tmp_path / "store").exists()


def test_pause_and_resume(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        recorder.pause()
        with recorder.step():
            model(torch.full((2, 4), math.nan))
        recorder.resume()
        model, optimizer = model, optimizer
        with recorder.step():
            model.eval()
            model(torch.full((2, 4), math.inf))
    assert [m["kind"] for m in manifests(tmp_path)] == ["nan"]
    assert len(recorder.incidents) == 1


def test_a_batch_that_cannot_be_recorded_is_noted_and_the_run_goes_on(tmp_path):
    model, optimizer = make()
    with (
        FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder,
        (tmp_path / "data.txt").open("w") as file,
    ):
        for number, batch in enumerate(batches(3, bad=[2])):
            with recorder.step({"file": file, "rows": (n for n in range(3)), **batch}):
                optimizer.zero_grad()
                model(batch["x"]).sum().backward()
                optimizer.step()
            assert number < 3
    (manifest,) = manifests(tmp_path)
    missing = " ".join(f"{m['what']} {m['why']}" for m in manifest["not_captured"])
    assert "file" in missing
    assert "rows" in missing


def test_lines_at_start_incident_and_end_and_nothing_else(tmp_path, caplog):
    model, optimizer = make()
    with (
        caplog.at_level(logging.INFO, "flightrec"),
        FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder,
    ):
        train(recorder, model, optimizer, batches(5, bad=[2]))
    lines = [record.getMessage() for record in caplog.records if record.name == "flightrec"]
    assert len(lines) == 3
    assert lines[0].startswith("recording Net (5 modules, ")
    assert f"flightrec bisect {recorder.incidents[0]}" in lines[1]
    assert "nan at step 2" in lines[1]
    assert lines[2].startswith("recorded 5 steps, 1 incident")


def test_step_numbers_can_be_given(tmp_path):
    model, _ = make()
    with FlightRecorder(tmp_path, model=model) as recorder:
        with recorder.step(step=41_316):
            model(torch.ones(2, 4))
        with recorder.step():
            model(torch.full((2, 4), math.nan))
    assert manifests(tmp_path)[0]["step"] == 41_317


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "net"}, "model must be"),
        ({"model": {}}, "model must be"),
        ({"model": {"a.b": nn.Linear(1, 1)}}, "model: a key"),
        ({"optimizer": 3}, "optimizer must be"),
        ({"ring_steps": 0}, "ring_steps"),
        ({"on_incident": "explode"}, "on_incident"),
        ({"detectors": ["nonsense"]}, "nonfinite"),
        ({"step_fn": lambda model, batch: None}, "step_fn"),
        ({"weights": "some"}, "weights"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_options_are_a_value_error_that_names_them(tmp_path, options, message):
    with pytest.raises((ValueError, LookupError), match=message):
        FlightRecorder(tmp_path, **{"model": nn.Linear(1, 1), **options})


def test_zero_initialised_head_learns_in_silence(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        train(recorder, model, optimizer, batches(5))
    assert recorder.incidents == []


def test_masks_in_buffers_are_no_incident(tmp_path):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.register_buffer("mask", torch.full((4, 4), -math.inf).triu(1))

        def forward(self, x):
            return (self.lin(x)[:, :4] + self.mask[: x.shape[0]]).softmax(-1)

    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        for _ in range(4):
            with recorder.step():
                optimizer.zero_grad()
                model(torch.ones(4, 4)).square().sum().backward()
                optimizer.step()
    assert recorder.incidents == []


def test_an_accumulated_segment_spans_steps(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        for number, batch in enumerate(batches(4)):
            with recorder.step(batch):
                scale = math.nan if number == 3 else 1.0
                (model(batch["x"]).sum() * scale).backward()
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()
    (manifest,) = manifests(tmp_path)
    assert [call["step"] for call in manifest["segment"]["calls"]] == [2, 3]
    assert (manifest["segment"]["first_step"], manifest["step"]) == (2, 3)


def test_lbfgs_closures_are_seen(tmp_path):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    calls = []
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        for number in range(2):
            with recorder.step():

                def closure(number=number):
                    optimizer.zero_grad()
                    calls.append(number)
                    bad = number == 1 and len(calls) > 5
                    loss = model(torch.ones(3, 4)).square().mean() * (math.nan if bad else 1)
                    loss.backward()
                    return loss

                optimizer.step(closure)
    assert len(recorder.incidents) <= 1
    assert len(calls) > 2


def test_the_optimizer_inside_the_backward_is_judged_when_it_ends(tmp_path):
    model = nn.Linear(4, 3)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    with FlightRecorder(tmp_path, model=model, optimizer=list(optimizers.values())) as recorder:
        for number in range(3):
            with recorder.step():
                (model(torch.ones(2, 4)).sum() * (math.nan if number == 2 else 1)).backward()
    (manifest,) = manifests(tmp_path)
    assert manifest["step"] == 2
    assert "weights before the update" in {m["what"] for m in manifest["not_captured"]}


def test_watch_finds_the_steps_by_itself(tmp_path):
    model, optimizer = make()
    recorder = flightrec.watch(model, optimizer, store=tmp_path)
    try:
        for number, batch in enumerate(batches(6, bad=[3])):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch["x"]), batch["y"]).backward()
            optimizer.step()
            if number == 1:
                model.eval()
                with torch.no_grad():
                    model(batch["x"])
                model.train()
    finally:
        recorder.close()
    (manifest,) = manifests(tmp_path)
    assert (manifest["kind"], manifest["step"]) == ("nan", 3)


def test_watch_without_optimizer_takes_each_call_for_a_step(tmp_path):
    model, _ = make()
    model.eval()
    recorder = flightrec.watch(model, store=tmp_path)
    try:
        with torch.no_grad():
            for batch in batches(6, bad=[3]):
                model(batch["x"])
    finally:
        recorder.close()
    (manifest,) = manifests(tmp_path)
    assert manifest["step"] == 3


def test_a_compiled_model_is_recorded_by_its_outermost_call(tmp_path):
    torch.manual_seed(0)
    model = Net()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        train(recorder, compiled, optimizer, batches(4, bad=[2]))
    (manifest,) = manifests(tmp_path)
    assert [(c["root"], c["module"]) for c in manifest["segment"]["calls"]] == [("", "")]
    assert manifest["site"] == ":output:#0"


def test_a_model_compiled_in_place_is_said_to_be_unseen(tmp_path, caplog):
    model = Net()
    model.compile(backend="eager")
    with caplog.at_level(logging.INFO, "flightrec"), FlightRecorder(tmp_path, model=model):
        pass
    assert "Module.compile()" in caplog.records[0].getMessage()


def test_incident_bytes_bounds_what_is_kept_and_says_what_is_not(tmp_path):
    model, optimizer = make()
    size = sum(t.numel() * t.element_size() for t in model.state_dict().values())
    with FlightRecorder(
        tmp_path, model=model, optimizer=optimizer, incident_bytes=size + 200_000
    ) as recorder:
        train(recorder, model, optimizer, batches(6, bad=[5]))
    (manifest,) = manifests(tmp_path)
    assert manifest["model"]["roots"] is not None
    assert len(manifest["controls"]) < 5
    assert "incident_bytes" in str(manifest["not_captured"])
    with (
        FlightRecorder(tmp_path / "small", model=make()[0], incident_bytes=10) as recorder,
        recorder.step(),
    ):
        recorder.capture("look")
    (manifest,) = manifests(tmp_path / "small")
    assert manifest["model"]["roots"] is None
    assert "weights" in {entry["what"] for entry in manifest["not_captured"]}


def test_settings_that_are_not_followed_yet_are_said(tmp_path, caplog):
    with (
        caplog.at_level(logging.INFO, "flightrec"),
        FlightRecorder(tmp_path, model=make()[0], check="async", weights="reference"),
    ):
        pass
    line = caplog.records[0].getMessage()
    assert "check='async'" in line
    assert "weights='reference'" in line


def test_numbers_given_by_the_user_may_jump(tmp_path):
    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        for number, batch in enumerate(batches(6, bad=[2])):
            with recorder.step(batch, step=number * 10):
                optimizer.zero_grad()
                model(batch["x"]).sum().backward()
                optimizer.step()
    assert len(recorder.incidents) == 1


@pytest.mark.parametrize("store", [None, 3, "", "s3//x:y://z"])
def test_a_store_that_is_none_is_refused_at_construction(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, LookupError)):
        FlightRecorder(store, model=nn.Linear(1, 1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", ["x", -5, 2.5, True])
def test_a_wrong_step_number_is_counted_and_the_run_goes_on(tmp_path, number):
    model, _ = make()
    with FlightRecorder(tmp_path, model=model) as recorder, recorder.step(step=number):
        model(torch.full((2, 4), math.nan))
    (manifest,) = manifests(tmp_path)
    assert manifest["step"] == 0
    assert manifest["dropped"] == {"step= that is no whole number from 0": 1}


def test_a_model_inside_a_recorded_one_is_refused_too(tmp_path):
    model, _ = make()
    with (
        FlightRecorder(tmp_path, model=model.inp),
        pytest.raises(ValueError, match="already being recorded"),
        FlightRecorder(tmp_path, model=model),
    ):
        pass


def test_an_incident_that_cannot_be_written_is_an_error_in_the_log(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("flightrec.incident.writer.RESERVE_BYTES", 1 << 62)
    model, _ = make()
    with FlightRecorder(tmp_path, model=model) as recorder, recorder.step():
        recorder.capture(3)
    assert recorder.incidents == []
    (line,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "could not be written" in line.getMessage()


def test_a_reaction_that_fails_is_said_and_stops_nothing(tmp_path, caplog):
    def page(incident):
        raise ConnectionError("my paging hook is broken")

    model, optimizer = make()
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer, on_incident=page) as recorder:
        losses = train(recorder, model, optimizer, batches(4, bad=[1]))
    assert len(losses) == 4
    assert "paging hook" in caplog.text


def test_a_batch_of_millions_of_numbers_is_not_looked_through(tmp_path):
    model, _ = make()
    numbers = list(range(3_000_000))
    with FlightRecorder(tmp_path, model=model) as recorder:
        for _ in range(3):
            with recorder.step(numbers):
                model(torch.ones(2, 4))
        with recorder.step(numbers):
            recorder.capture("look")
    (manifest,) = manifests(tmp_path)
    assert "batch" in {entry["what"].split(":")[0] for entry in manifest["not_captured"]}
    assert len(str(manifest["segment"]["batch"])) < 1_000


class Poison(torch.optim.SGD):
    """Writes NaN into a weight at its third step, from gradients that are fine."""

    def step(self, closure=None):
        super().step(closure)
        self.count = getattr(self, "count", 0) + 1
        if self.count == 3:
            with torch.no_grad():
                self.param_groups[0]["params"][0][0, 0] = math.nan


@pytest.mark.parametrize("steps", [3, 6])
def test_a_weight_that_the_update_spoils_is_captured_with_the_segment_that_shows_it(
    tmp_path, steps, monkeypatch
):
    monkeypatch.setattr("flightrec.probes.parameters.SHARE_EVERY", 1)
    model, _ = make()
    optimizer = Poison(model.parameters(), lr=0.01)
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer) as recorder:
        train(recorder, model, optimizer, batches(steps))
    (manifest,) = manifests(tmp_path)
    param = next(f for f in manifest["findings"] if ":param:" in f["site"])
    assert (param["step"], param["site"]) == (2, "inp:param:weight#0")
    last = steps == 3  # no step came after it
    assert manifest["step"] == (2 if last else 3)
    gone = "weights before the update" in {entry["what"] for entry in manifest["not_captured"]}
    assert gone == last


def test_a_place_is_told_once_however_late_the_commit_is_known(tmp_path, monkeypatch):
    known = threading.Event()

    def slow(**_):
        known.wait(30)
        return {
            "repository": ".",
            "commit": "c0ffee",
            "dirty": False,
            "diff": "",
            "diff_truncated": False,
        }

    monkeypatch.setattr("flightrec.recorder.collect_code", slow)
    model, _ = make()
    with FlightRecorder(tmp_path, model=model.eval()) as recorder:
        for number, batch in enumerate(batches(6, bad=[1, 4])):
            with recorder.step(batch), torch.no_grad():
                model(batch["x"])
            if number == 2:
                known.set()
                recorder._environment.join()
    (manifest,) = manifests(tmp_path)
    assert manifest["fingerprint"] == "nan|:output:|c0ffee"
