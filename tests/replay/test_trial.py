"""Candidates are tried in order, and experiments have the last word."""

from __future__ import annotations

import torch
from torch import nn

from replay.bisect import bisect
from replay.engine import Engine
from replay.episode import Episode


class Decoy(nn.Module):
    """An infinity that is cut off again, and later the NaN that reaches the output."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        decoy = (x * 0).log()  # reaches the output where it does no harm
        bounded = torch.where(x > 100, decoy, x)
        return bounded * self.scale + decoy.exp() + (x - 3).sqrt()


def examine(model, batch, kind="nan"):
    engine = Engine({"": model}, step_fn=lambda module, given: module(given).sum())
    episode = Episode(step=4, calls=(), batch=batch.clone, rng=engine.generators.read())
    return bisect(engine, episode, (), kind)


def test_value_that_does_not_reach_the_output_as_bad_is_not_blamed():
    found = examine(Decoy(), torch.tensor([4.0, 2.0]))
    assert (found.op, found.confirmed, found.step) == ("aten.sqrt.default", True, 4)


class Choice(nn.Module):
    """Takes the minimum with an infinity, which changes nothing, and divides by zero."""

    def forward(self, x):
        ceiling = 1 / (x * 0)
        return torch.minimum(x, ceiling) / (x - x)


def test_candidate_that_does_not_heal_gives_way_to_one_that_does():
    found = examine(Choice(), torch.tensor([4.0, 2.0]), "inf")
    assert (found.op, found.confirmed) == ("aten.div.Tensor", True)


def test_batch_and_state_are_named_with_what_they_hold():
    model = nn.Linear(2, 2)
    found = examine(model, torch.tensor([[1.0, float("nan")], [1.0, 1.0]]))
    assert (found.phase, found.index, found.sample) == ("data", (0, 1), 0)
    assert "batch holds nan" in found.evidence[0].text
    with torch.no_grad():
        model.weight[1, 0] = float("inf")
    found = examine(model, torch.ones(3, 2), "inf")
    assert (found.phase, found.module, found.module_type) == ("parameter", "", "Linear")
    assert found.index == (1, 0)
