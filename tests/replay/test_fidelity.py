"""What is compared, what counts as unavailable, and what differed first."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import mse_loss

from replay.engine import Engine
from replay.fidelity import LEFT_OVER, OUTSIDE, compare


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x):
        return {"logits": self.body(x), "size": torch.tensor(len(x))}


def step(tape, penalty=0.0):
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    out = tape.call(":", x)
    loss = mse_loss(out["logits"], y)
    model = tape.models[""]
    if penalty:
        loss = loss + penalty * sum(p.square().sum() for p in model.parameters())
    tape.backward(loss)
    return tape.episode(loss=loss.detach())


def test_exact(tape):
    tape = tape(Pair())
    episode = step(tape)
    found = compare(episode, Engine(tape.weights).run(episode))
    assert (found.outputs, found.gradients, found.max_ulp) == ("bit_exact", "bit_exact", 0)
    assert found.first_divergence is None
    assert found.compared == 2 + 4
    assert found.by_hash == 0


def test_hashes_do_where_no_values_were_kept(tape):
    tape = tape(Pair())
    episode = step(tape)
    call = episode.calls[0]
    hashed = replace(
        episode,
        calls=(replace(call, outputs=tuple(replace(o, value=None) for o in call.outputs)),),
        gradients=tuple(replace(g, value=None) for g in episode.gradients),
    )
    engine = Engine(tape.weights)
    found = compare(hashed, engine.run(hashed))
    assert (found.outputs, found.gradients) == ("bit_exact", "bit_exact")
    assert found.by_hash == found.compared == 6
    with torch.no_grad():
        tape.weights[""].body[0].weight[0, 0] += 1
    found = compare(hashed, Engine(tape.weights).run(hashed))
    assert found.outputs == "diverged"
    assert found.first_divergence == ":output:['logits']#0"


def test_one_weight_a_little_off_is_close(tape):
    tape = tape(Pair())
    episode = step(tape)
    with torch.no_grad():
        tape.weights[""].body[2].bias.mul_(1 + 3e-7)
    found = compare(episode, Engine(tape.weights).run(episode))
    assert found.outputs == "close"
    assert found.max_ulp > 0
    assert found.first_divergence == ":output:['logits']#0"


def test_penalty_on_weights_is_a_path_outside(tape):
    tape = tape(Pair())
    episode = step(tape, penalty=0.1)
    engine = Engine(tape.weights)
    trace = engine.run(episode)
    assert compare(episode, trace).gradients != "bit_exact"
    found = compare(episode, trace, again=engine.run(episode))
    assert (found.outputs, found.gradients) == ("bit_exact", "unavailable")
    assert found.reason == OUTSIDE
    assert found.max_ulp == 0
    assert found.first_divergence is None


def test_gradients_left_over(tape):
    model = Pair()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    tape = tape(model)
    episode = replace(step(tape), grads_present=True)
    engine = Engine(tape.weights)
    found = compare(episode, engine.run(episode), again=engine.run(episode))
    assert (found.gradients, found.reason) == ("unavailable", LEFT_OVER)


def test_reason_given_by_the_recorder_counts(tape):
    tape = tape(Pair())
    episode = replace(step(tape), gradients_unavailable="over device_bytes")
    found = compare(episode, Engine(tape.weights).run(episode))
    assert (found.gradients, found.reason) == ("unavailable", "over device_bytes")


def test_runs_that_do_not_agree_are_diverged(tape):
    tape = tape(Pair())
    episode = step(tape)
    engine = Engine(tape.weights)
    trace = engine.run(episode)
    other = replace(trace, gradients={k: v + 1 for k, v in trace.gradients.items()})
    assert compare(episode, other, again=trace).gradients == "diverged"


def test_step_fn_is_judged_fully(tape):
    tape = tape(Pair())
    episode = replace(step(tape, penalty=0.1), batch=lambda: None)
    trace = replace(Engine(tape.weights).run(replace(episode, batch=None)), whole=True)
    found = compare(episode, trace, again=trace)
    assert found.gradients == "diverged"
    assert found.first_divergence == "body.0:param_grad:weight#0"


def test_no_backward(tape):
    tape = tape(Pair().eval())
    with torch.no_grad():
        tape.call(":", torch.randn(3, 4))
    episode = tape.episode()
    assert compare(episode, Engine(tape.weights).run(episode)).gradients == "none"


def test_outputs_changed_afterwards_are_left_out(tape):
    tape = tape(Pair())
    episode = step(tape)
    call = episode.calls[0]
    wrong = replace(call.outputs[0], changed=True, value=lambda: torch.zeros(6, 2))
    episode = replace(episode, calls=(replace(call, outputs=(wrong, call.outputs[1])),))
    found = compare(episode, Engine(tape.weights).run(episode))
    assert found.outputs == "bit_exact"
    assert found.compared == 1 + 4


def test_a_loss_that_was_computed_again_is_compared(tape):
    tape = tape(Pair())
    episode = step(tape)
    trace = Engine(tape.weights).run(episode)
    wrong = replace(trace, loss=episode.loss + 1, whole=True)
    found = compare(episode, wrong)
    assert (found.outputs, found.first_divergence) == ("diverged", ":loss:#0")


def test_calls_that_were_not_reached_are_diverged(tape):
    tape = tape(Pair())
    episode = step(tape)
    trace = Engine(tape.weights).run(episode)
    assert compare(episode, replace(trace, outputs=())).outputs == "diverged"
