"""Entries into modules, by recorded name."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from replay.stack import ModuleStack


class Inner(nn.Module):
    def forward(self, x):
        if x is None:
            raise ValueError("nothing given")
        return x.exp()


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.loose = [Inner()]

    def forward(self, x):
        return self.loose[0](self.inner(self.inner(x)))


def stack_of(model):
    names = {id(module): name for name, module in model.named_modules()}
    visits, ended = [], []
    return (
        ModuleStack(names, visits, lambda visit, output: ended.append(visit.module)),
        visits,
        ended,
    )


def told(visits):
    return [(each.module, each.call, each.root_call, each.again) for each in visits]


def test_every_entry_is_counted_and_the_entry_is_put_back():
    model = Outer()
    before = nn.Module.__call__
    stack, visits, ended = stack_of(model)
    with stack:
        stack.open_call(5)
        model(torch.ones(1))
        stack.open_call(5)
        model(torch.ones(1))
    assert nn.Module.__call__ is before
    assert told(visits) == [
        ("", 0, 0, False), ("inner", 0, 0, False), ("inner", 1, 0, False),
        ("", 1, 1, False), ("inner", 2, 1, False), ("inner", 3, 1, False),
    ]  # fmt: skip
    assert ended == ["inner", "inner", ""] * 2
    assert {each.step for each in visits} == {5}


def test_calls_are_counted_from_zero_in_the_next_step():
    model = Outer()
    stack, visits, _ = stack_of(model)
    with stack:
        for step in (1, 2):
            stack.open_call(step)
            model(torch.ones(1))
    assert [(each.step, each.call, each.root_call) for each in visits[::3]] == [
        (1, 0, 0),
        (2, 0, 0),
    ]


def test_call_that_opens_after_the_entry_corrects_it():
    model = Outer()
    stack, visits, _ = stack_of(model)
    handle = model.register_forward_pre_hook(lambda *_: stack.open_call(9))
    with stack:
        model(torch.ones(1))
    handle.remove()
    assert [(each.module, each.step, each.root_call) for each in visits[:2]] == [
        ("", 9, 0),
        ("inner", 9, 0),
    ]


def test_exception_leaves_no_entry_behind():
    model = Outer()
    stack, visits, ended = stack_of(model)
    with stack, pytest.raises(ValueError, match="nothing given"):
        model(None)
    assert stack.entries == []
    assert ended == []
    assert [each.ended for each in visits] == [-1, -1]


def test_recomputation_is_counted_on_its_own():
    model = Inner()
    stack, visits, _ = stack_of(model)
    with stack:
        x = torch.ones(1, requires_grad=True)
        (checkpoint(model, x, use_reentrant=False) * x).sum().backward()
    assert told(visits) == [("", 0, 0, False), ("", 0, 0, True)]
