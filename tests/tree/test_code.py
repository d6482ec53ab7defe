"""Code by name, and only where the name leads back to it."""

import enum
import functools
import math
import operator
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from flightrec.errors import CannotRebuildError
from flightrec.tree import Decoder, Placeholder


class Colour(enum.Enum):
    RED = 1
    CRIMSON = RED


class Mode(str, enum.Enum):  # noqa: UP042 - the older form is common and has another mro
    FAST = "fast"


class Level(enum.IntEnum):
    HIGH = 3


class Bits(enum.Flag):
    A = 1
    B = 2


class Deep(enum.Enum):
    LIST = (1, "x")


class Holder:
    limit: ClassVar[int] = 3

    def method(self):
        return self.x

    @classmethod
    def maker(cls):
        return cls.limit

    @staticmethod
    def static():
        return 5

    class Inner:
        pass


class Special(functools.partial):
    pass


def function(x, y=0):
    return (x, y)


@functools.lru_cache
def cached(x):
    return x


@functools.wraps(function)
def impostor(x):
    return x


def test_enum_members_are_the_members(travel):
    value = [Colour.RED, Mode.FAST, Level.HIGH, Bits.A, Bits.A | Bits.B, Deep.LIST, Bits(0)]
    back = travel(value)
    assert all(a is b for a, b in zip(back, value, strict=True))


def test_a_member_that_is_gone(travel):
    node = travel.encoder.encode(Colour.RED)
    node["name"], node["value"] = "BLUE", 7
    with pytest.raises(CannotRebuildError, match="BLUE"):
        Decoder(None, type("R", (), {"resolve_class": lambda *_: Colour})()).decode(node)
    with pytest.raises(CannotRebuildError, match="no enum"):
        Decoder(None, type("R", (), {"resolve_class": lambda *_: Holder})()).decode(node)


@pytest.mark.parametrize(
    "value",
    [
        function,
        cached,
        Holder.static,
        Holder.method,
        math.sqrt,
        operator.add,
        len,
        torch.relu,
        torch.nn.functional.relu,
        F.max_pool2d,
        torch.Tensor.relu,
        str.upper,
        F.gelu,
        F.scaled_dot_product_attention,
        torch.special.expit,
        torch.linalg.norm,
        torch.fft.fft,
        np.add,
        np.mean,
        Holder,
        Holder.Inner,
        int,
        type(None),
        torch.nn.Linear,
        np.float32,
        enum.EnumMeta,
    ],
    ids=str,
)
def test_by_name(travel, value):
    assert travel(value) is value
    assert travel.why == []


def test_what_has_no_name_of_its_own(travel):
    def local():
        pass

    values = [lambda: 0, local, impostor, [].append, "".join, type("Made", (), {})]
    back = travel(values)
    assert all(type(held) is Placeholder for held in back)
    assert len(travel.why) == 6
    assert "<lambda> is local to a function" in travel.why[0]


def test_bound_methods(travel):
    holder = Holder()
    holder.x = [1]
    back = travel([holder, holder.method, Holder.maker])
    assert back[1]() is back[0].x
    assert back[1].__self__ is back[0]
    assert back[2]() == 3


def test_a_method_bound_to_itself_in_a_cycle(travel, new_travel):
    holder = Holder()
    holder.x = holder.method
    back = travel(holder)
    assert back.x.__self__ is back
    back = new_travel()(holder.x)
    assert back.__self__.x == back


def test_partials(travel):
    shared = [1]
    inner = functools.partial(function, shared)
    inner.note = "kept"
    outer = functools.partial(inner, y=shared)
    special = Special(function, 2)
    back = travel([outer, special, inner])
    assert back[0]() == ([1], [1])
    assert back[0].func is back[2]
    assert back[2].note == "kept"
    assert back[0].keywords["y"] is back[2].args[0]
    assert type(back[1]) is Special
    assert back[1](3) == (2, 3)


def test_a_partial_in_a_cycle(travel):
    loop = []
    loop.append(functools.partial(function, loop))
    back = travel(loop)
    assert back[0].args[0] is back


def test_slices_ranges_sizes(travel):
    value = [slice(1, None, 2), range(0, 10, 3), torch.Size([2, 3]), slice([1], 2)]
    back = travel(value)
    assert back == value
    assert type(back[2]) is torch.Size


def test_builtin_classes_need_no_trust(travel):
    node = travel.encoder.encode([int, dict, type(None)])
    assert Decoder(None, None).decode(node) == [int, dict, type(None)]
