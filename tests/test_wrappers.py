"""Wrappers of other libraries are seen through."""

from __future__ import annotations

import functools
from types import MethodType
from typing import NamedTuple

import pytest
import torch
from torch import nn

from flightrec.wrappers import AutocastForward, PassThrough, is_ours, known_hook, unpatched, wrapped


class ConvertOutputsToFp32:
    """Named and built like the one in accelerate."""

    def __init__(self, model_forward):
        self.model_forward = model_forward
        functools.update_wrapper(self, model_forward)

    def __call__(self, *args, **kwargs):
        return self.model_forward(*args, **kwargs).float()


def prepare(model):
    """Patch a model as `Accelerator.prepare` does for bf16."""
    model._original_forward = model.forward
    model.forward = MethodType(torch.autocast("cpu", torch.bfloat16)(model.forward.__func__), model)
    convert = ConvertOutputsToFp32(model.forward.__func__)

    def forward(*args, **kwargs):
        return convert(*args, **kwargs)

    forward.__wrapped__ = convert
    model.forward = MethodType(forward, model)
    return model


def test_mixed_precision_is_taken_off_and_put_back():
    model = prepare(nn.Linear(4, 4))
    state, autocast, note = unpatched(model, dict(vars(model)))
    assert "forward" not in state
    assert note is None
    assert autocast == AutocastForward(
        device="cpu", dtype=torch.bfloat16, enabled=True, cache=True, float32=True
    )
    twin = nn.Linear(4, 4)
    twin.load_state_dict(model.state_dict())
    twin.forward = autocast.bind(twin)
    x = torch.randn(2, 4)
    assert torch.equal(twin(x), model(x))
    assert not torch.equal(twin(x), nn.Linear.forward(twin, x))


class Pair(NamedTuple):
    a: torch.Tensor
    b: object


class Nested(nn.Module):
    def forward(self, x):
        return {"pair": Pair(x.bfloat16(), [x.half(), (x.double(), "text")])}


def test_outputs_are_widened_wherever_they_are():
    settings = AutocastForward(
        device="cpu", dtype=torch.bfloat16, enabled=False, cache=True, float32=True
    )
    output = settings.bind(Nested())(torch.ones(2))
    assert type(output["pair"]) is Pair
    assert output["pair"].a.dtype is torch.float32
    assert output["pair"].b[0].dtype is torch.float32
    assert output["pair"].b[1][0].dtype is torch.float64


def test_attributes_of_other_patches_stay():
    model = nn.Linear(2, 2)
    model._original_forward = model.forward
    model.forward = lambda x: x
    state, autocast, note = unpatched(model, dict(vars(model)))
    assert state["forward"] is model.forward
    assert (autocast, note) == (None, None)


def test_a_stand_in_has_the_names_and_calls_with_hooks():
    inner = nn.Linear(2, 2)
    outer = nn.DataParallel(inner)
    assert wrapped(outer) == ("module", "DataParallel")
    assert wrapped(inner) is None
    stand_in = PassThrough()
    stand_in.inside = "module"
    with pytest.raises(AttributeError):
        stand_in.anything  # noqa: B018 - reading it is the test
    stand_in.module = inner
    seen = []
    inner.register_forward_hook(lambda *_: seen.append(1))
    assert torch.equal(stand_in(torch.ones(1, 2)), inner(torch.ones(1, 2)))
    assert len(seen) == 2
    assert stand_in.in_features == 2


def test_whose_hook_it_is():
    assert is_ours(unpatched)
    assert is_ours(functools.partial(unpatched, 1))
    assert is_ours(PassThrough().forward)
    assert not is_ours(print)
    assert not is_ours(lambda: None)
    assert known_hook(print) is print
