"""`flightrec replay` and `flightrec bisect`, on incidents that a recorder wrote."""

import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from flightrec import FlightRecorder
from flightrec.cli import _judging, main
from flightrec.types import Verdict

KEYS = [
    "incident_id", "status", "fidelity", "gradients", "max_ulp", "kind", "phase", "step",
    "noticed_step", "rank", "module", "module_type", "call", "root_call", "op", "backward_of",
    "source", "sample", "index", "confirmed", "evidence", "first_divergence", "forward_passes",
    "seconds",
]  # fmt: skip


@pytest.fixture(autouse=True)
def key(tmp_path, monkeypatch):
    """Sign with a key of this test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("FLIGHTREC_KEY", raising=False)


@pytest.fixture
def overflow(store):
    """Record an overflow in layer 2 of a network, from good numbers; return the incident's id."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    with torch.no_grad():
        model[2].weight.fill_(3e38)
    with FlightRecorder(store.url, model=model) as recorder:
        for step in range(3):
            batch = torch.zeros(5, 4)
            if step == 2:
                batch[3] = 100.0
            with recorder.step(batch), torch.no_grad():
                model(batch)
    (id,) = recorder.incidents
    return id


def test_replay_says_that_it_happens_again(run, store, overflow):
    found = run("replay")
    assert found.code == 0
    assert overflow in found.out
    assert "equal to the bit" in found.out
    (row,) = store.verdicts(overflow)
    assert (row["command"], row["status"], row["device"]) == ("replay", "reproduced", "cpu")


def test_replay_as_json(run, overflow):
    found = run("replay", overflow, "--json")
    assert found.code == 0
    assert list(found.json) == KEYS
    assert (found.json["status"], found.json["fidelity"]) == ("reproduced", "bit_exact")


def test_bisect_names_the_culprit(run, store, overflow):
    found = run("bisect", overflow[:13])
    assert found.code == 0
    for words in ("2 (Linear)", "aten.addmm", "forward pass", "sample    3"):
        assert words in found.out
    row = store.rows()[0]
    assert (row["status"], row["phase"], row["culprit"]) == ("reproduced", "forward", "2")


def test_bisect_as_json(run, overflow):
    found = run("bisect", "--json").json
    assert list(found) == KEYS
    assert (found["kind"], found["module"], found["sample"]) == ("inf", "2", 3)


def test_a_loose_file_is_judged_and_kept_nowhere(run, store, overflow, tmp_path):
    loose = tmp_path / "sent.h5"
    loose.write_bytes(store.path(overflow).read_bytes())
    assert run("replay", loose, "--store", tmp_path / "none").code == 0
    assert store.verdicts(overflow) == []


def test_a_store_that_cannot_be_written_is_said(run, store, overflow):
    (store.root / "catalog" / "verdicts").write_text("in the way")
    found = run("replay")
    assert found.code == 0
    assert "the verdict was not kept" in found.err
    assert found.err.count("\n") == 1


def test_a_device_that_is_not_here(run, overflow):
    assert run("replay", "--device", "cuda:77").code == 2
    assert run("replay", "--device", "toaster").code == 2


def test_a_model_that_cannot_be_imported(run, overflow):
    assert run("replay", "--model", "no_such_package_here:make").code == 3
    assert run("bisect", "--model", "nonsense").code == 2


def test_a_damaged_incident(run, store, overflow):
    store.path(overflow).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert run("replay").code == 3
    assert run("bisect").code == 3


def verdict(**changes):
    values = {
        "incident_id": "x",
        "status": "not_reproduced",
        "fidelity": "close",
        "gradients": "none",
        "kind": "nan",
        "step": 7,
        "noticed_step": 7,
    }
    return Verdict(**(values | changes))


@pytest.mark.parametrize(
    ("status", "phase", "codes"),
    [
        ("reproduced", "loss", (0, 0)),
        ("reproduced", None, (0, 1)),
        ("not_reproduced", None, (1, 1)),
        ("diverged", None, (1, 1)),
        ("unsupported", None, (3, 3)),
    ],
)
def test_status_and_culprit_decide_the_exit_code(status, phase, codes, run, overflow, monkeypatch):
    class Replayer:
        notes = ("recorded on H100, replayed on the CPU",)

        def run(self):
            return verdict(incident_id=overflow, status=status, phase=phase)

        bisect = run

    monkeypatch.setattr(_judging, "load", lambda *args, **kwargs: Replayer())
    for command, code in zip(("replay", "bisect"), codes, strict=True):
        with pytest.raises(SystemExit) as left:
            main([command])
        assert left.value.code == code


def test_options_reach_the_replay(run, overflow, monkeypatch):
    given = {}

    def load(incident, **options):
        given.update(options, id=incident.id)
        raise _judging.StoreError("enough")

    monkeypatch.setattr(_judging, "load", load)
    words = ["--trust", "a", "--trust", ".", "--code", "recorded", "--model", "m:f"]
    run("bisect", "--device", "cpu:0", *words)
    assert given == {
        "id": overflow,
        "model": "m:f",
        "device": torch.device("cpu:0"),
        "trust": ("a", "."),
        "code": "recorded",
    }


def test_it_restarts_once_where_the_environment_differs(monkeypatch):
    started = []
    monkeypatch.setattr(_judging, "reexec_environment", lambda incident: {"OMP_NUM_THREADS": "3"})
    monkeypatch.setattr(_judging.os, "execve", lambda *words: started.append(words))
    monkeypatch.setattr(_judging.sys, "orig_argv", ["python", "-m", "flightrec", "replay"])
    monkeypatch.delenv(_judging.RESTARTED, raising=False)
    _judging.restart(object())
    ((program, words, environment),) = started
    assert words == [program, "-m", "flightrec", "replay"]
    assert environment["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv(_judging.RESTARTED, environment[_judging.RESTARTED])
    _judging.restart(object())
    assert len(started) == 1


def test_it_does_not_restart_where_nothing_differs(monkeypatch):
    monkeypatch.setattr(_judging, "reexec_environment", lambda incident: None)
    monkeypatch.setattr(_judging.os, "execve", lambda *words: pytest.fail("restarted"))
    monkeypatch.delenv(_judging.RESTARTED, raising=False)
    _judging.restart(object())


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="one capability only"
)
def test_a_process_with_another_capability_is_replaced(store, overflow):
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "3"}
    environment.pop(_judging.RESTARTED, None)
    done = subprocess.run(
        [sys.executable, "-m", "flightrec", "replay", "--json"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fidelity"] == "bit_exact"
    assert "capability" not in done.stderr
