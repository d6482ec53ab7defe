"""Named tuples of a function's own."""

from collections import namedtuple
from typing import NamedTuple

import torch

from flightrec.tree.local import is_namedtuple


def test_a_local_named_tuple_is_made_anew(travel):
    class Batch(NamedTuple):
        x: torch.Tensor
        y: object = None

    shared = []
    value = [Batch(torch.ones(1), shared), Batch(torch.zeros(1), shared)]
    shared.append(value[0])
    back = travel(value)
    assert travel.why == []
    assert type(back[0]) is type(back[1])
    assert type(back[0]).__name__ == "Batch"
    assert back[0]._fields == ("x", "y")
    assert back[0].x.item() == 1
    assert back[1].y[0] is back[0]


def test_only_plain_ones(travel):
    class More(namedtuple("Base", "x")):
        __slots__ = ()

        def extra(self):
            return 1

    assert not is_namedtuple(More)
    assert is_namedtuple(namedtuple("Plain", "x"))
    travel(More(1))
    assert travel.why == ["its class cannot be imported under its own name"]
