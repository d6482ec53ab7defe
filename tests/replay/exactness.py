"""Is a re-execution equal to the bit to what a tape recorded?"""

from __future__ import annotations

import random

import torch

from replay.bits import same_bits
from replay.engine import Engine


def check(tape, episode, *, engine=None, runs=2):
    """Replay over the weights at the start and compare every bit with what was taped."""
    engine = engine or Engine(tape.weights)
    for _ in range(runs):
        torch.manual_seed(random.randrange(1000))
        trace = engine.run(episode)
        assert trace.exception is None
        assert trace.notes == ()
        for call, outputs in zip(episode.calls, trace.outputs, strict=True):
            assert [each.leaf for each in call.outputs] == [leaf for leaf, _ in outputs]
            for recorded, (_, tensor) in zip(call.outputs, outputs, strict=True):
                assert same_bits(recorded.value(), tensor)
        assert {each.parameter for each in episode.gradients} == set(trace.gradients)
        for recorded in episode.gradients:
            assert same_bits(recorded.value(), trace.gradients[recorded.parameter]), (
                recorded.parameter
            )
    return trace
