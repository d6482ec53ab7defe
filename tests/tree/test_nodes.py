"""Numbers, placeholders, and indices inside nodes."""

import copy
import json
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flightrec.errors import CannotRebuildError, CorruptIncidentError
from flightrec.tree import Placeholder, number, parse_number, rebase, tensor_indices


@given(st.floats(allow_nan=False))
def test_number_survives_strict_json(x):
    back = parse_number(json.loads(json.dumps(number(x), allow_nan=False)))
    assert back == x
    assert math.copysign(1, back) == math.copysign(1, x)


def test_number_tags_nan():
    assert number(math.nan) == {"$": "float", "v": "nan"}
    assert math.isnan(parse_number(number(math.nan)))


@pytest.mark.parametrize("node", [True, "1", None, {"$": "float", "v": "1"}, {"v": "nan"}, []])
def test_parse_number_refuses(node):
    with pytest.raises(CorruptIncidentError, match="number"):
        parse_number(node)


def test_rebase_changes_a_copy_and_only_tensors():
    inner = {"$": "tensor", "i": 1}
    node = {"$": "list", "i": 1, "v": [inner, {"$": "tensor", "i": 0}, ["tensor", 1]]}
    assert rebase(node, [7, 9]) == {
        "$": "list",
        "i": 1,
        "v": [{"$": "tensor", "i": 9}, {"$": "tensor", "i": 7}, ["tensor", 1]],
    }
    assert inner == {"$": "tensor", "i": 1}
    assert rebase(5, []) == 5
    assert rebase({"$": "tensor", "i": 0}, [3]) == {"$": "tensor", "i": 3}


def test_rebase_needs_no_stack():
    node = {"$": "tensor", "i": 0}
    for _ in range(5000):
        node = {"$": "list", "v": [node]}
    assert list(tensor_indices(rebase(node, [4]))) == [4]


def test_tensor_indices_keep_their_order():
    nodes = [{"$": "tensor", "i": i} for i in (3, 1, 2)]
    assert list(tensor_indices({"a": nodes[0], "b": [nodes[1], {"c": nodes[2]}]})) == [3, 1, 2]


TOUCHES = {
    "attribute": lambda p: p.attribute,
    "call": lambda p: p(),
    "iterate": list,
    "truth": bool,
    "item": lambda p: p[0],
    "length": len,
    "add": lambda p: p + 1,
    "reflected": lambda p: 1 * p,
    "order": lambda p: p < 1,
    "contains": lambda p: 1 in p,
    "set": lambda p: setattr(p, "a", 1),
    "enter": lambda p: p.__enter__(),
    "float": float,
    "torch function": lambda p: torch.add(torch.ones(1), p),
    "tensor operator": lambda p: torch.ones(1) * p,
    "inside a list": lambda p: torch.stack([torch.ones(1), p]),
}


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES)
def test_a_placeholder_raises_when_touched(touch):
    with pytest.raises(CannotRebuildError, match=r"args\[0\]: a lambda|the incident does not hold"):
        touch(Placeholder("args[0]: a lambda", "local to a function"))


def test_a_placeholder_can_be_held():
    held = Placeholder("what", "why")
    assert repr(held) == "<not captured: what (why)>"
    assert copy.copy(held) is held
    assert copy.deepcopy([held])[0] is held
    assert held != Placeholder("what", "why")
    assert {held: 1}[held] == 1
    assert repr(pickle.loads(pickle.dumps(held))) == repr(held)
    assert not hasattr(held, "__len_hint__")
