"""How long naming a culprit takes, beside one plain step of the same network."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass

import torch

import replay
from benchmarks.overhead import Bench
from benchmarks.pairs import Ratio, ratio
from benchmarks.tools import Unwatched
from benchmarks.workloads import WORKLOADS, Transformer
from flightrec import FlightRecorder

HEALTHY = 3
HUGE = 1e25
"""Its square is not finite in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisecting:
    """What one bisection of the transformer with 33M parameters costs."""

    step_seconds: float
    """Forward, backward and update without any tool."""

    load_seconds: float
    """Reading the incident and rebuilding the model."""

    bisect_seconds: float

    bisect_over_step: Ratio
    """Goal 3."""

    culprit: str


def measure(rounds: int) -> Bisecting:
    """Let one word's embedding overflow a norm, then bisect it again and again."""
    workload = next(each for each in WORKLOADS if each.name == "transformer-33M-2x128")
    bench = Bench.of(workload, "cpu")
    with tempfile.TemporaryDirectory() as store:
        _fail(bench, store)
        twin = Bench.of(workload, "cpu")
        steps, loads, bisects, culprit = [], [], [], ""
        for _ in range(rounds):
            started = time.perf_counter()
            twin.train(Unwatched(), 1)
            stepped = time.perf_counter()
            replayer = replay.load(store)
            loaded = time.perf_counter()
            verdict = replayer.bisect()
            bisects.append(time.perf_counter() - loaded)
            steps.append(stepped - started)
            loads.append(loaded - stepped)
            culprit = f"{verdict.module} {verdict.op} sample {verdict.sample}"
    return Bisecting(
        step_seconds=statistics.median(steps),
        load_seconds=statistics.median(loads),
        bisect_seconds=statistics.median(bisects),
        bisect_over_step=ratio(bisects, steps),
        culprit=culprit,
    )


def _fail(bench: Bench, store: str) -> None:
    """Take healthy steps, then one in which sample 1 holds a word with a huge embedding."""
    assert isinstance(bench.model, Transformer)
    with FlightRecorder(store, model=bench.model, optimizer=bench.optimizer) as recorder:
        bench.train(recorder, HEALTHY)
        word = bench.model.words.num_embeddings - 1
        with torch.no_grad():
            bench.model.words.weight[word] = HUGE
            for ids_BT, _ in bench.batches:
                ids_BT[ids_BT == word] = 0
            bench.batches[0][0][1, 5] = word
        bench.train(recorder, 1)
