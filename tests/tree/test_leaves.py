"""Paths of tensors inside values."""

import enum
from collections import OrderedDict, UserDict, deque, namedtuple
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pack_sequence

from flightrec.tree import leaves

Point = namedtuple("Point", "x y")


class Kind(enum.Enum):
    A = torch.ones(1)


@dataclass
class Result:
    logits: torch.Tensor
    extra: object = None


class Cache:
    __slots__ = ("keys",)


class Batch(UserDict):
    pass


class Loud:
    def __getattr__(self, name):
        raise RuntimeError

    @property
    def __class__(self):
        raise RuntimeError


def paths(value):
    return [path for path, _ in leaves(value)]


def test_a_bare_tensor():
    tensor = torch.ones(1)
    assert list(leaves(tensor)) == [("", tensor)]
    assert next(iter(leaves(torch.nn.Parameter(tensor))))[0] == ""


def test_containers():
    t = torch.ones(1)
    value = {
        "past": OrderedDict(values=[t, (t, 1, None, "x")]),
        3: Point(t, [t]),
        "d": deque([t]),
        Kind.A: t,
    }
    assert paths(value) == [
        "['past']['values'][0]",
        "['past']['values'][1][0]",
        "[3].x",
        "[3].y[0]",
        "['d'][0]",
        "[<Kind>]",
    ]


def test_objects():
    t = torch.ones(1)
    cache = Cache()
    cache.keys = [t]
    packed = pack_sequence([t])
    assert paths(Result(t, {"cache": cache})) == [".logits", ".extra['cache'].keys[0]"]
    assert paths(packed) == [".data", ".batch_sizes"]
    assert paths(Batch(ids=t)) == ["['ids']"]
    assert paths(torch.distributions.Normal(t, t))[:2] == [".loc", ".scale"]


def test_what_is_not_looked_into():
    module = torch.nn.Linear(1, 1)
    assert paths([module, Kind, Kind.A, {torch.ones(1)}, len, "text", Loud(), object()]) == []


def test_cycles_and_depth():
    loop = [torch.ones(1)]
    loop.append(loop)
    loop.append({"loop": loop})
    assert paths(loop) == ["[0]"]
    deep = torch.ones(1)
    for _ in range(5000):
        deep = [deep]
    assert paths(deep) == []


def test_the_same_tensor_twice():
    t = torch.ones(1)
    assert paths([t, t]) == ["[0]", "[1]"]
