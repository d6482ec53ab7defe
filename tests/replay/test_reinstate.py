"""State before a call: buffers written only where they differ, autocast blocks, observers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from replay.bits import same_bits
from replay.engine import Engine
from replay.reinstate import Reinstate, unobserved
from tests.replay.networks import Noisy

BFLOAT = ({"device": "cpu", "dtype": "bfloat16", "enabled": True, "cache": True},)


@pytest.fixture
def state(tape):
    """Return a state over a network with one recorded call, and that call."""
    tape = tape(Noisy())
    tape.call(":", torch.randn(5, 6))
    episode = tape.episode()
    return Reinstate(Engine(tape.weights), episode), episode.calls[0]


def test_buffers_are_written_where_they_differ(state):
    reinstate, call = state
    norm = reinstate._engine.models[""].norm
    wanted = norm.running_mean.clone()
    version = norm.running_mean._version
    reinstate.before(call)
    assert norm.running_mean._version == version
    norm.running_mean.add_(1)
    reinstate.before(call)
    assert same_bits(norm.running_mean, wanted)
    assert norm.running_mean._version == version + 1, "graphs that saved it stay usable"


def test_a_buffer_of_another_type_or_none_is_replaced(state):
    reinstate, call = state
    norm = reinstate._engine.models[""].norm
    wanted = norm.running_mean.clone()
    norm.running_mean = wanted.double()
    reinstate.before(call)
    assert same_bits(norm.running_mean, wanted)
    norm.running_mean = None
    reinstate.before(call)
    assert same_bits(norm.running_mean, wanted)


def test_flags_that_were_not_recorded_stay(state):
    reinstate, call = state
    model = reinstate._engine.models[""].eval()
    reinstate.before(replace(call, training=None))
    assert not model.training
    reinstate.before(replace(call, training=frozenset({":drop"})))
    assert [name for name, each in model.named_modules() if each.training] == ["drop"]


def test_autocast_blocks_go_on_over_neighbours(state):
    reinstate, _ = state
    reinstate.enter_autocast(BFLOAT)
    assert torch.is_autocast_enabled("cpu")
    block = reinstate._autocast
    reinstate.enter_autocast(BFLOAT)
    assert reinstate._autocast is block
    reinstate.enter_autocast(())
    assert not torch.is_autocast_enabled("cpu")
    reinstate.enter_autocast(BFLOAT)
    reinstate._engine.one_autocast = False
    block = reinstate._autocast
    reinstate.enter_autocast(BFLOAT)
    assert reinstate._autocast is not block
    reinstate.leave_autocast()
    assert not torch.is_autocast_enabled("cpu")


def test_observers_see_the_forward_and_nothing_of_the_engines_work(tape):
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func._schema.name)
            return func(*args, **kwargs or {})

        call_begin = call_end = backward_begin = backward_end = lambda *_: None

    model = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())
    tape = tape(model)
    tape.call(":", torch.randn(4, 3))
    engine = Engine(tape.weights)
    engine.models[""][0].running_mean.add_(1)
    engine.run(tape.episode(), observer=Watch())
    replayed = list(seen)
    seen.clear()
    x = torch.randn(4, 3)
    with Watch():
        model(x)
    assert replayed == seen
    assert "aten::native_batch_norm" in seen


def test_unobserved_hides_modes_and_comes_back():
    calls = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **kwargs or {})

    with Mode():
        with unobserved():
            torch.zeros(1) + 1
        assert calls == []
        torch.zeros(1)
    assert len(calls) == 1
