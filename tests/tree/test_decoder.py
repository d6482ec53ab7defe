"""Damaged and hostile nodes: one kind of error, and nothing done."""

import contextlib
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flightrec.tree
from flightrec.errors import (
    CannotRebuildError,
    CodeMissingError,
    CorruptIncidentError,
    UntrustedNameError,
)
from flightrec.tree import Decoder, Placeholder

OURS = (CorruptIncidentError, CannotRebuildError, UntrustedNameError, CodeMissingError)


class Closed:
    def resolve_class(self, module, qualname):
        raise UntrustedNameError(f"{module}:{qualname}")

    def resolve_function(self, module, qualname):
        raise CodeMissingError(f"{module}:{qualname}")


def nothing(index):
    raise CorruptIncidentError(f"no tensor {index}")


def decoder():
    return Decoder(nothing, Closed())


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text(string.ascii_letters, max_size=3)
tags = st.sampled_from(sorted(Decoder.readers))
WORDS = (
    "v i t to id of class function name self args kwargs state slots parts size stride dtype "
    "shape order factory max kind bits device default gauss version value zone flags what why"
)
words = st.sampled_from(WORDS.split(" "))
nodes = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.builds(
            lambda tag, rest: {**rest, "$": tag}, tags, st.dictionaries(words, inner, max_size=4)
        )
    ),
    max_leaves=20,
)


def test_every_tag_is_described():
    lines = flightrec.tree.__doc__.splitlines()
    described = {word for line in lines if line[:4] == "    " for word in line[:37].split()}
    mentioned = {"timezone", "zoneinfo"}
    assert described | mentioned == set(Decoder.readers)


@given(nodes)
def test_nothing_but_our_errors(node):
    with contextlib.suppress(*OURS):
        decoder().decode(node)


@pytest.mark.parametrize(
    "node",
    [
        [],
        {},
        {"$": "no such"},
        {"$": ["list"]},
        {"$": "list"},
        {"$": "list", "v": 3},
        {"$": "dict", "v": [[1]]},
        {"$": "dict", "v": [[{"$": "list", "v": []}, 1]]},
        {"$": "set", "v": [{"$": "list", "v": []}]},
        {"$": "float", "v": "1e5"},
        {"$": "int", "v": "zz"},
        {"$": "device", "v": "toaster"},
        {"$": "torch", "v": "load"},
        {"$": "path", "v": "x", "kind": "Popen"},
        {"$": "bytes", "v": "not base64!"},
        {"$": "datetime", "v": [1], "zone": None},
    ],
    ids=json.dumps,
)
def test_malformed(node):
    with pytest.raises(CorruptIncidentError):
        decoder().decode(node)


def test_too_deep():
    node = 1
    for _ in range(100_000):
        node = {"$": "list", "v": [node]}
    with pytest.raises(CorruptIncidentError, match="Recursion"):
        decoder().decode(node)
    while isinstance(node, dict):  # taken down gently: deallocation is recursive too
        node = node.pop("v").pop()


def test_trust_decides():
    with pytest.raises(UntrustedNameError, match="os:system"):
        decoder().decode({"$": "object", "class": "os:system"})
    with pytest.raises(CodeMissingError, match="os:system"):
        decoder().decode({"$": "list", "v": [{"$": "function", "name": "os:system"}]})


def test_a_reference_to_what_was_left_out():
    back = decoder().decode({"$": "list", "v": [{"$": "ref", "to": 7}, 1]})
    assert type(back[0]) is Placeholder
    assert back[1] == 1


def test_a_tuple_that_is_nothing_but_itself():
    with pytest.raises(CorruptIncidentError):
        decoder().decode({"$": "tuple", "id": 0, "v": [{"$": "ref", "to": 0}]})


def test_references_across_nodes_of_one_encoder():
    one = decoder()
    first = one.decode({"$": "list", "id": 0, "v": []})
    assert one.decode({"$": "tuple", "v": [{"$": "ref", "to": 0}]})[0] is first
