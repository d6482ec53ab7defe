"""How often an episode is run, and what that shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from replay.engine import Engine
from replay.measure import measure

MANIFEST = {"kind": "manual", "site": None, "findings": []}


def trained(tape):
    tape = tape(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)))
    tape.backward(tape.call(":", torch.randn(6, 4)).square().mean())
    return tape, tape.episode()


def test_an_exact_replay_takes_one_run(tape):
    tape, episode = trained(tape)
    found = measure(Engine(tape.weights), episode, MANIFEST)
    assert (found.status, found.runs) == ("reproduced", 1)
    assert found.comparison.outputs == found.comparison.gradients == "bit_exact"


def test_a_difference_is_told_from_chance(tape):
    tape, episode = trained(tape)
    with torch.no_grad():
        tape.weights[""][0].weight += 1
    found = measure(Engine(tape.weights), episode, MANIFEST)
    assert (found.status, found.runs) == ("diverged", 2)
    assert {item.kind: item.value for item in found.evidence}["determinism"] is True


def test_changed_code_is_blamed_for_a_difference_only(tape):
    tape, episode = trained(tape)
    outside = replace(episode, exception={"type": "KeyError"})
    manifest = {**MANIFEST, "kind": "exception"}
    same = measure(Engine(tape.weights), outside, manifest, changed=["m:F"])
    assert "code" not in {item.kind for item in same.evidence}
    with torch.no_grad():
        tape.weights[""][0].weight += 1
    apart = measure(Engine(tape.weights), outside, manifest, changed=["m:F"])
    texts = {item.kind: item.text for item in apart.evidence}
    assert texts["code"] == "the code has changed since: m:F; numbers differ"
    assert texts["determinism"].endswith("the difference lies in the code, which has changed")


def test_chance_is_recognised(tape):
    class Random(nn.Module):
        def __init__(self):
            super().__init__()
            self.draws = iter(range(1, 100))

        def forward(self, x):
            return x + next(self.draws)

    tape = tape({"": nn.Identity()})
    tape.call(":", torch.zeros(3))
    episode = tape.episode()
    found = measure(Engine({"": Random()}), episode, MANIFEST)
    assert {item.kind: item.value for item in found.evidence}["determinism"] is False


@pytest.mark.parametrize("shared", [True, False])
def test_casts_under_autocast_may_have_been_shared_or_not(tape, shared):
    tape = tape(nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 1)))
    if shared:
        with torch.autocast("cpu", torch.bfloat16):
            outs = [tape.call(":", torch.randn(5, 6)) for _ in range(3)]
    else:
        outs = []
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                outs.append(tape.call(":", torch.randn(5, 6)))
    tape.backward(sum(out.float().square().sum() for out in outs))
    engine = Engine(tape.weights)
    found = measure(engine, tape.episode(), MANIFEST)
    assert found.comparison.gradients == "bit_exact"
    assert found.runs == (1 if shared else 2)
    assert engine.one_autocast is shared


def test_what_cannot_be_told_is_unsupported(tape):
    tape, episode = trained(tape)
    outside = replace(episode, exception={"type": "KeyError"})
    found = measure(Engine(tape.weights), outside, {**MANIFEST, "kind": "exception"})
    assert found.status == "unsupported"


def test_an_exact_replay_without_the_failure(tape):
    tape, episode = trained(tape)
    manifest = {"kind": "nan", "site": ":output:#0", "findings": []}
    assert measure(Engine(tape.weights), episode, manifest).status == "not_reproduced"


def test_evidence_says_what_was_compared_how(tape):
    tape, episode = trained(tape)
    hashed = replace(
        episode,
        gradients=tuple(replace(each, value=None) for each in episode.gradients),
        loss=torch.tensor(1.0),
    )
    found = measure(Engine(tape.weights), hashed, MANIFEST)
    texts = {item.kind: item.text for item in found.evidence}
    assert texts["fidelity"] == "4 of 5 tensors were compared by hash"
    assert "step_fn" in texts["loss"]
