"""Operators run alone, mended and counted."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from replay.confirm import Heal, Keep, MendState
from replay.engine import Engine
from replay.episode import Episode
from replay.scan import Scan
from replay.values import make_finite


class Logs(nn.Module):
    def forward(self, x):
        return nn.functional.dropout((x - 1).log(), 0.5).exp()


@pytest.fixture
def step():
    """Return a function that runs one step under an observer."""
    engine = Engine({"": Logs()}, step_fn=lambda module, batch: module(batch).sum())
    batch = torch.tensor([2.0, 0.5, 3.0])
    episode = Episode(step=0, calls=(), batch=batch.clone, rng=engine.generators.read())
    return lambda observer: engine.run(episode, observer, backward=False)


def index_of(step, name):
    scan = Scan({"": Logs()})
    step(scan)
    return next(op.index for op in scan.log.ops if op.name == name)


def test_kept_operator_makes_the_same_again(step):
    at = index_of(step, "aten.log.default")
    keep = Keep({at: "aten.log.default"})
    step(keep)
    kept = keep.kept[at]
    assert torch.equal(kept.outputs[0].isnan(), torch.tensor([False, True, False]))
    assert torch.equal(kept.alone().outputs[0].isnan(), kept.outputs[0].isnan())
    assert kept.alone(lambda each: each.abs()).outputs[0].isfinite().all()


def test_random_operator_draws_the_same_again(step):
    at = index_of(step, "aten.bernoulli_.float")
    keep = Keep({at: "aten.bernoulli_.float"})
    step(keep)
    state = torch.random.get_rng_state()
    assert torch.equal(keep.kept[at].alone().outputs[0], keep.kept[at].outputs[0])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_mended_operator_mends_the_step(step):
    at = index_of(step, "aten.log.default")
    assert step(None).loss.isnan()
    heal = Heal({at: "aten.log.default"}, make_finite)
    assert step(heal).loss.isfinite()
    assert (heal.mended, heal.strayed) == (1, False)


def test_another_operator_at_that_place_is_noticed(step):
    at = index_of(step, "aten.log.default")
    heal = Heal({at: "aten.exp.default"}, make_finite)
    step(heal)
    assert (heal.mended, heal.strayed) == (0, True)


def test_operator_that_raises_is_kept_with_its_error():
    table, index = nn.Embedding(3, 2), torch.tensor([9])
    keep = Keep({0: "aten.embedding.default"})
    with keep, pytest.raises(IndexError):
        table(index)
    assert keep.kept[0].error.startswith("IndexError: ")
    assert keep.kept[0].alone().error == keep.kept[0].error


def test_state_is_mended_while_it_runs_only():
    model = nn.BatchNorm1d(2).eval()
    model.running_mean[1] = math.nan
    with MendState(lambda: [model.running_mean], make_finite) as mend:
        assert model(torch.ones(2, 2)).isfinite().all()
        mend.call_begin(None, model)
    assert model.running_mean[1].isnan()
