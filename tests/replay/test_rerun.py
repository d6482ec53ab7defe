"""Exceptions, step functions, edits and attributes in a re-execution."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from replay.bits import same_bits
from replay.engine import Engine
from replay.episode import RecordedBackward
from tests.replay.exactness import check
from tests.replay.networks import Noisy


def test_exception_names_module_and_line(tape):
    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(4, 3)

        def forward(self, index):
            return self.table(index)

    tape = tape(nn.Sequential(nn.Identity(), Lookup()))
    with pytest.raises(IndexError):
        tape.call(":", torch.tensor([7]))
    trace = Engine(tape.weights).run(tape.episode())
    assert trace.exception.type == "IndexError"
    assert trace.exception.module == ":1.table"
    assert trace.exception.phase == "forward"
    assert trace.exception.traceback[-1].code.startswith("return torch.embedding")


def test_exception_in_backward(tape):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no gradient here")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return Fails.apply(x * self.weight)

    tape = tape(Model())
    out = tape.call(":", torch.ones(2, 3))
    with pytest.raises(ValueError, match="no gradient"):
        tape.backward(out.sum())
    episode = tape.episode()
    trace = Engine(tape.weights).run(_with_backward(episode))
    assert trace.exception.type == "ValueError"
    assert trace.exception.phase == "backward"


def _with_backward(episode):

    entered = RecordedBackward(
        number=0, after_call=1, gradients=lambda: [(0, "", torch.ones(2, 3))]
    )
    return replace(episode, backwards=(entered,))


def test_step_fn_covers_the_loss(tape):
    def step_fn(model, batch):
        x, y = batch
        x = x + torch.rand_like(x)
        return mse_loss(model(x), y) + 1e-2 * model.first.weight.square().sum()

    tape = tape(Noisy())
    batch = (torch.randn(8, 6), torch.randn(8, 3))
    live = tape.models[""]
    tape.rng = tape.generators.read()
    x = batch[0] + torch.rand_like(batch[0])
    out = tape.call(":", x)
    loss = mse_loss(out, batch[1]) + 1e-2 * live.first.weight.square().sum()
    tape.backward(loss)
    episode = tape.episode(batch=lambda: batch, loss=loss.detach())
    seen = []
    trace = check(tape, episode, engine=Engine(tape.weights, step_fn=step_fn))
    assert same_bits(trace.loss, loss)

    class Watcher:
        def __enter__(self):
            seen.append("in")

        def __exit__(self, *_):
            seen.append("out")

        def call_begin(self, call, module):
            seen.append(("call", call.index, type(module).__name__))

        def call_end(self, call, output):
            seen.append(("end", tuple(output.shape)))

        def backward_begin(self, number):
            seen.append(("backward", number))

        def backward_end(self, number):
            seen.append(("done", number))

    for engine in (Engine(tape.weights), Engine(tape.weights, step_fn=step_fn)):
        seen.clear()
        engine.run(episode, observer=Watcher())
        assert seen == [
            "in",
            ("call", 0, "Noisy"),
            ("end", (8, 3)),
            ("backward", 0),
            ("done", 0),
            "out",
        ]


def test_edit_exchanges_arguments(tape):
    tape = tape(nn.Linear(2, 1))
    tape.call(":", torch.tensor([[float("nan"), 1.0], [2.0, 3.0]]))

    def edit(call, args, kwargs):
        assert call.index == 0
        return (torch.zeros_like(args[0]),), kwargs

    engine, episode = Engine(tape.weights), tape.episode()
    assert engine.run(episode).outputs[0][0][1].isnan().any()
    assert engine.run(episode, edit=edit).outputs[0][0][1].isfinite().all()
    assert engine.run(episode).outputs[0][0][1].isnan().any()


def test_a_gradient_that_does_not_fit_is_left_out_and_noted(tape):
    tape = tape(nn.Linear(2, 3))
    tape.call(":", torch.ones(4, 2))
    entered = [
        (0, "", torch.ones(4, 3)),
        (0, "", torch.ones(7, 3)),
        (0, "['gone']", torch.ones(4, 3)),
        (5, "", torch.ones(4, 3)),
    ]
    backward = RecordedBackward(number=0, after_call=1, gradients=lambda: entered)
    trace = Engine(tape.weights).run(replace(tape.episode(), backwards=(backward,)))
    assert trace.exception is None
    assert trace.notes == (
        "no gradient can enter at output '' of call 0",
        "no gradient can enter at output \"['gone']\" of call 0",
        "no gradient can enter at output '' of call 5",
    )
    assert torch.equal(trace.gradients[":bias"], torch.full((3,), 4.0))
