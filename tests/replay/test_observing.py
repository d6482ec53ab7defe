"""Runs that are counted, and judged by a symptom."""

from __future__ import annotations

import torch
from torch import nn

from replay.confirm import Heal, MendState
from replay.engine import Engine
from replay.episode import Episode
from replay.observing import Bench, Pair
from replay.symptom import Watch
from replay.values import make_finite


class Logs(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.last = Log(), Bounded()

    def forward(self, x):
        return self.last(self.inner(x))


class Log(nn.Module):
    def forward(self, x):
        return x.log()


class Bounded(nn.Module):
    def forward(self, x):
        return x.nan_to_num(0.0)


def bench():
    engine = Engine({"": Logs()}, step_fn=lambda module, batch: module(batch).sum())
    batch = torch.tensor([2.0, -1.0])
    return Bench(engine, Episode(step=3, calls=(), batch=batch.clone, rng=engine.generators.read()))


def test_runs_are_counted():
    place = bench()
    place.run()
    place.scan(place.episode)
    assert place.runs == 2


def test_batch_is_known_to_a_scan_by_name():
    scanned = bench().scan(bench().episode)
    assert ("batch",) in {leaf.names for leaf in scanned.log.leaves.values()}


def test_inner_symptom_is_judged_operator_by_operator():
    place = bench()
    scanned = place.scan(place.episode)
    (symptom,) = Watch([]).inner(scanned.look, known=False)
    judged = place.judged_by(symptom)
    assert symptom.keys == ((0, "inner:"),)
    assert not judged.is_healthy()
    (log,) = [op for op in scanned.log.ops if op.name == "aten.log.default"]
    assert judged.is_healthy(Heal({log.index: log.name}, make_finite))
    assert not judged.is_healthy(MendState(list, make_finite))
    assert judged.is_healthy(edit=lambda call, args, kwargs: ((torch.ones(2),), kwargs))


def test_pair_tells_both_and_leaves_both():
    told = []

    class Told:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            told.append(f"{self.name} enters")
            return self

        def __exit__(self, *_):
            told.append(f"{self.name} leaves")

        def call_begin(self, call, module):
            told.append(f"{self.name} begins")

        call_end = backward_begin = backward_end = call_begin

    with Pair(Told("a"), Told("b")) as pair:
        pair.call_begin(None, None)
    assert told == ["a enters", "b enters", "a begins", "b begins", "b leaves", "a leaves"]
