"""Names that are true, and names that are not."""

import collections
import functools
import math

import torch

from flightrec.tree.naming import class_name, find, importable_class, importable_function, mro


class Meta(type):
    @property
    def __mro__(cls):
        raise AssertionError


class Odd(metaclass=Meta):
    pass


class Named:
    def method(self):
        pass


def test_find_imports_nothing_and_runs_nothing():
    assert find("math", "sqrt") is math.sqrt
    assert find(__name__, "Named.method") is Named.method
    assert find("no.such.module", "x") is None
    assert find("math", "nothing") is None
    assert find(__name__, "Named.nothing.more") is None


def test_mro_without_the_metaclass():
    assert mro(Odd) == (Odd, object)


def test_classes():
    assert importable_class(collections.OrderedDict) == "collections:OrderedDict"
    assert importable_class(Named) == f"{__name__}:Named"
    assert importable_class(type("Named", (), {"__module__": __name__})) is None
    assert importable_class(type("X", (), {"__module__": 5})) is None
    assert class_name(type("X", (), {"__module__": 5})) == "?:X"


def test_functions():
    assert importable_function(torch.relu) == "torch:relu"
    assert importable_function(Named.method) == f"{__name__}:Named.method"
    assert importable_function(functools.reduce) == "_functools:reduce"
    assert importable_function(lambda: 0) is None
    assert importable_function(object()) is None
