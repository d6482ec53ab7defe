"""Experiments on candidates, each told in plain words."""

from __future__ import annotations

import torch
from torch import nn

from replay.choice import choose
from replay.engine import Engine
from replay.episode import Episode
from replay.norm import Healthy, Judge
from replay.observing import Bench
from replay.proof import Prover
from replay.search import trace_back
from replay.symptom import Watch


class Huge(nn.Module):
    """Overflows so far that what is left of it when infinities are gone overflows again."""

    def forward(self, x):
        huge = x * 3e38
        return huge.pow(2) * 0


class Sibling(nn.Module):
    def forward(self, x):
        return x.log()


class Siblings(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Sibling(), Sibling()

    def forward(self, x):
        return self.a(x) + self.b(x)


class Exp(nn.Module):
    """Overflows on its own, beside a mask that is no fault."""

    def forward(self, x):
        return (x + torch.full_like(x, float("-inf")).triu(1)).exp()


def prove(model, batch):
    engine = Engine({"": model}, step_fn=lambda module, given: module(given).sum())
    episode = Episode(step=0, calls=(), batch=batch.clone, rng=engine.generators.read())
    bench = Bench(engine, episode)
    scanned = bench.scan(episode)
    symptom = Watch([]).find(scanned.look, "nan")
    judge = Judge(scanned.log, Healthy([]))
    starts = [(span, at) for _, _, span, at in scanned.log.outputs]
    candidates = choose(judge, trace_back(judge, starts))
    prover = Prover(judge, bench.judged_by(symptom))
    return candidates[0], prover.operator(candidates[0])


def texts(proof):
    return [each.text for each in proof.evidence]


def test_producer_repeats_and_heals():
    candidate, proof = prove(Sibling(), torch.tensor([1.0, -1.0]))
    assert candidate.reason == "origin"
    assert proof.confirmed
    assert proof.index == (1,)
    assert texts(proof) == [
        "aten.log.default run alone on its recorded inputs makes the bad value again",
        "making the output of aten.log.default finite heals the step",
    ]


def test_same_fault_in_siblings_is_mended_together():
    _, proof = prove(Siblings(), torch.tensor([1.0, -1.0]))
    assert proof.confirmed
    assert "all 2 runs of aten.log.default at this place" in texts(proof)[1]


def test_overflow_is_replaced_where_its_rest_is_huge():
    candidate, proof = prove(Huge(), torch.tensor([1.0, 10.0]))
    assert candidate.reason == "origin"
    assert proof.heals
    assert "values of ordinary size" in texts(proof)[1]


def test_suspect_that_overflows_without_the_mask_is_a_producer():
    candidate, proof = prove(Exp(), torch.full((3, 3), 100.0))
    assert candidate.reason == "suspect"
    assert proof.produces
    assert proof.confirmed
