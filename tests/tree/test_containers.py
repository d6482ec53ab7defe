"""Containers keep their class, their order, their sharing and their cycles."""

from collections import Counter, OrderedDict, defaultdict, deque, namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

keys = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.binary(max_size=3)
)
hashable = st.recursive(
    keys, lambda inner: st.tuples(inner, inner) | st.frozensets(inner), max_leaves=4
)
values = st.recursive(
    keys | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.sets(hashable, max_size=4)
        | st.lists(inner, max_size=4).map(deque)
    ),
    max_leaves=12,
)

Point = namedtuple("Point", "x y")


class Bag(dict):
    """A dictionary whose own methods must not be used."""

    def __setitem__(self, key, value):
        raise AssertionError

    def __iter__(self):
        raise AssertionError

    def __len__(self):
        raise AssertionError

    def items(self):
        raise AssertionError


class Row(list):
    def append(self, item):
        raise AssertionError

    def __iter__(self):
        raise AssertionError


class Pair(tuple):  # noqa: SLOT001 - most do not have them
    def __new__(cls, *args):
        raise AssertionError


class Word(str):
    __slots__ = ()

    def __str__(self):
        raise AssertionError


class Count(int):
    pass


class Weight(float):
    pass


class Blob(bytes):
    pass


class Output(OrderedDict):
    """Like the outputs of transformers: fields as keys and as attributes."""

    def __setattr__(self, name, value):
        raise AssertionError


def types_in(value):
    if isinstance(value, dict):
        return [type(value), [(types_in(k), types_in(v)) for k, v in value.items()]]
    if isinstance(value, (list, tuple, deque)):
        return [type(value), [types_in(item) for item in value]]
    return type(value)


@given(value=values)
def test_round_trip(new_travel, value):
    back = new_travel()(value)
    assert back == value
    assert types_in(back) == types_in(value)


def test_order_and_class_of_mappings(travel):
    value = {
        "ordered": OrderedDict(b=1, a=2),
        "default": defaultdict(list, {1: [2]}),
        "counter": Counter("hello"),
        "plain": {"z": 1, "a": 2},
    }
    back = travel(value)
    assert back == value
    assert [type(item) for item in back.values()] == [type(item) for item in value.values()]
    assert list(back["plain"]) == ["z", "a"]
    assert list(back["ordered"]) == ["b", "a"]
    assert back["default"]["new"] == []


def test_deque_keeps_its_limit(travel):
    back = travel(deque([1, 2], maxlen=2))
    assert back == deque([1, 2])
    assert back.maxlen == 2


def test_user_keys_are_no_tags(travel):
    value = {"$": "tensor", "i": 0, 1: {"$": "ref", "id": 0}}
    assert travel(value) == value


def test_subclasses_of_builtins_without_their_methods(travel):
    bag, row, pair = Bag(), Row([1]), tuple.__new__(Pair, (1, [2]))
    dict.__setitem__(bag, "k", row)
    bag.note = "hung on"
    value = [bag, pair, Word("w"), Count(3), Weight(0.5), Blob(b"x"), Point(1, y=[2])]
    back = travel(value)
    assert [type(item) for item in back] == [type(item) for item in value]
    assert list.__getitem__(dict.__getitem__(back[0], "k"), 0) == 1
    assert back[0].note == "hung on"
    assert back[1] == (1, [2])
    assert str.__str__(back[2]) == "w"
    assert back[3:6] == [3, 0.5, b"x"]
    assert back[6].y == [2]
    assert travel.why == []


def test_fields_that_are_keys_and_attributes(travel):
    output = OrderedDict.__new__(Output)
    tensor = torch.ones(2)
    OrderedDict.__setitem__(output, "logits", tensor)
    output.__dict__["logits"] = tensor
    output.__dict__["loss"] = None
    back = travel(output)
    assert type(back) is Output
    assert back["logits"] is back.logits
    assert back.loss is None


def test_structseq(travel):
    found = torch.max(torch.tensor([[1.0, 3.0]]), dim=1)
    back = travel(found)
    assert type(back) is type(found)
    assert back.indices.tolist() == [1]


def test_sharing_is_kept(travel):
    shared, once = [1], (1, 2)
    back = travel({"a": shared, "b": [shared, shared], "c": once, "d": once})
    assert back["a"] is back["b"][0] is back["b"][1]
    assert "id" not in travel.node["v"][2][1]


def test_equal_is_not_shared(travel):
    back = travel([[1], [1]])
    assert back[0] is not back[1]


def test_cycles_through_everything(travel):
    loop = [0]
    loop.append({"loop": loop, "queue": deque([loop]), "tuple": (loop,)})
    back = travel(loop)
    assert back[1]["loop"] is back
    assert back[1]["queue"][0] is back
    assert back[1]["tuple"][0] is back


def test_a_tuple_that_contains_itself(travel):
    inner = []
    outer = (inner, 1)
    inner.append(outer)
    inner.append({"deep": (outer,)})
    back = travel(outer)
    assert back[0][0] is back
    assert back[0][1]["deep"][0] is back


def test_a_list_inside_its_own_tuple(travel):
    loop = []
    loop.append((loop, frozenset({1})))
    back = travel(loop)
    assert back[0][0] is back


def test_deep_nesting_is_cut_and_said(travel):
    deep = []
    for _ in range(5000):
        deep = [deep]
    back = travel(deep)
    for _ in range(90):
        back = back[0]
    assert travel.why == ["nested more than 100 levels deep"]


def test_a_wide_web_of_tuples_stays_small(travel):
    web = ([],)
    for _ in range(60):
        web = (web, web)
    back = travel(web)
    assert back[0] is back[1]


def test_sets_agree_whatever_their_order(new_travel):
    nodes = [
        new_travel().encoder.encode(set(items)) for items in (["b", "a", "c"], ["c", "b", "a"])
    ]
    assert nodes[0] == nodes[1]
    assert nodes[0]["v"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "items",
    [
        list(range(50)),
        [0.5] * 50,
        [True] * 50,
        [*range(40), 2**70],
        [*[0.5] * 40, float("inf")],
        list(range(5000)),
        [float("nan"), -0.0, *[0.25] * 2000],
        [2**80] * 2000,
        [1, 0.5] * 1000,
    ],
    ids=["int", "float", "bool", "big", "inf", "many", "many floats", "many big", "mixed"],
)
def test_long_lists(travel, items):
    back = travel([items, tuple(items), deque(items)])
    assert list(map(repr, back[0])) == list(map(repr, items))
    assert repr(back[1]) == repr(tuple(items))
    assert repr(back[2]) == repr(deque(items))


def test_many_numbers_become_a_tensor(travel):
    travel(list(range(5000)))
    assert travel.node["t"] == {"$": "tensor", "i": 0}


def test_elements_have_a_budget(new_travel):
    travel = new_travel()
    travel.encoder.items_left = 10
    back = travel([["a"] * 20, "b"])
    assert back[1] == "b"
    assert travel.why == ["20 elements, 8 left in the budget"]


def test_budget_holds_for_wide_webs(new_travel):
    travel = new_travel()
    travel.encoder.items_left = 2000
    web = [[[[str(i)] for i in range(20)] for _ in range(20)] for _ in range(20)]
    travel.encoder.encode(web)
    assert "left in the budget" in travel.why[0]
    assert len(travel.encoder.not_captured) <= 201
