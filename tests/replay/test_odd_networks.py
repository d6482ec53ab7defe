"""Networks with state, generators and habits of their own, recorded and replayed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

import replay
from tests.replay import networks, odd_networks


def squared(model, data):
    """Return a loss of any output."""
    return model(data["x"]).square().mean()


def called_in_both_modes(model, data):
    """Call in train mode, then in eval mode."""
    first = model.train()(data["x"])
    second = model.eval()(data["x"])
    return first.square().mean() + second.abs().mean()


def with_batch(model, data):
    """Hand the whole batch to the model, twice."""
    return model(data).square().mean() + model(data).abs().mean()


def through_submodules(model, data):
    """Never call the root; hand a parameter to a function in between."""
    hidden = model.body(data["x"])
    return linear(model.body(hidden), model.embed.weight).square().mean()


def batch_with_list(number):
    """Return a batch that the network changes."""
    return {**networks.batch(number), "seen": []}


@pytest.mark.parametrize(
    ("make", "loss_fn", "data"),
    [
        (odd_networks.KeepsHidden, squared, None),
        (odd_networks.WritesHiddenInPlace, squared, None),
        (odd_networks.Caches, squared, None),
        (odd_networks.Draws, squared, None),
        (odd_networks.ChangesInput, with_batch, batch_with_list),
        (odd_networks.Mode, called_in_both_modes, None),
        (odd_networks.SpectralNorm, squared, None),
        (odd_networks.OldWeightNorm, squared, None),
        (odd_networks.WritesParameter, squared, None),
        (odd_networks.SharesAndFreezes, squared, None),
    ],
)
def test_replay_is_exact(record, make, loss_fn, data):
    torch.manual_seed(0)
    replayer = replay.load(record(loss_fn, model=make(), data=data))
    for _ in range(2):
        replayer._measured = None
        verdict = replayer.run()
        assert (verdict.fidelity, verdict.gradients, verdict.max_ulp) == (
            "bit_exact",
            "bit_exact",
            0,
        ), verdict


def test_a_weight_used_outside_the_calls_is_another_path(record):
    verdict = replay.load(record(through_submodules, model=odd_networks.Inner())).run()
    assert (verdict.fidelity, verdict.gradients) == ("bit_exact", "unavailable")


def test_controls_run_as_they_did(record):
    replayer = replay.load(record(squared, model=odd_networks.KeepsHidden()))
    first, second = replayer.prepared.controls
    model = replayer.prepared.models[""]
    kept = model.hidden.clone()
    trace = replayer.engine.run(first)
    cell = nn.GRUCell(4, 8)
    cell.load_state_dict(model.cell.state_dict())
    assert torch.equal(trace.outputs[0][0][1], cell(networks.batch(0)["x"]))
    assert replayer.engine.run(second).exception is None
    assert torch.equal(model.hidden, kept)
