"""Namespaces and read-only views."""

from collections import UserDict
from types import MappingProxyType, SimpleNamespace

import pytest


class Rude(UserDict):
    def __or__(self, other):
        raise RuntimeError


def test_namespaces_with_cycles(travel):
    value = SimpleNamespace(a=[1])
    value.me = value
    value.view = MappingProxyType({"value": value})
    back = travel(value)
    assert back.a == [1]
    assert back.me is back
    assert back.view["value"] is back


def test_a_view_stays_read_only(travel):
    back = travel(MappingProxyType({"k": [2]}))
    assert back == {"k": [2]}
    with pytest.raises(TypeError):
        back["k"] = 3


def test_views_of_other_mappings_are_said(travel):
    travel(MappingProxyType(Rude()))
    assert travel.why == ["a view of a mapping that is no dictionary"]
