"""Names that are true, names that are not, and modules that were run without being registered."""

import collections
import functools
import importlib.util
import math
import sys

import pytest
import torch

from flightrec.structure import describe, rebuild
from flightrec.tree import TensorLoader, TensorTable
from flightrec.tree.naming import (
    class_name,
    find,
    globals_of,
    importable_class,
    importable_function,
    is_native,
    mro,
)
from flightrec.trust import Trust

TEXT = """
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Pair:
    a: torch.Tensor

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)

    def forward(self, x):
        return Pair(self.lin(x))

def helper(x):
    return x

def make():
    class Inner(nn.Module):
        pass
    return Inner
"""


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


def test_native():
    assert is_native(int)
    assert is_native(functools.partial)
    assert not is_native(Named)
    assert not is_native(collections.UserDict)


@pytest.fixture
def loose(tmp_path):
    """A module that runs without being registered, as `exec_module` alone leaves it."""
    path = tmp_path / "loose_case.py"
    path.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("loose_case_for_naming", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.__name__ not in sys.modules
    return module


def test_classes_and_functions_of_an_unregistered_module_have_names(loose):
    assert importable_class(loose.Net) == "loose_case_for_naming:Net"
    assert importable_class(loose.Pair) == "loose_case_for_naming:Pair"
    assert importable_function(loose.helper) == "loose_case_for_naming:helper"
    assert globals_of("loose_case_for_naming")["__file__"].endswith("loose_case.py")


def test_a_local_class_of_such_a_module_has_none(loose):
    importable_class(loose.Net)
    assert importable_class(loose.make()) is None


def test_a_registered_module_is_never_replaced_by_a_loose_one(loose, monkeypatch):
    importable_class(loose.Net)
    monkeypatch.setitem(sys.modules, "loose_case_for_naming", sys)
    assert find("loose_case_for_naming", "Net") is None
    assert importable_class(loose.Net) is None


def test_its_model_is_described_with_file_and_text_and_rebuilt_from_the_file(loose):
    torch.manual_seed(0)
    model, table = loose.Net(), TensorTable()
    description = describe({"": model}, table)
    assert description.not_captured == []
    storages, refs = table.export()
    load = TensorLoader(refs, lambda number: storages[number].data)
    trust = Trust.from_settings(own=True, names=(), sources=description.sources)
    again = rebuild(description.node, load, trust)[""]
    x = torch.ones(1, 2)
    assert torch.equal(again(x).a, model(x).a)
    sys.modules.pop("loose_case_for_naming", None)
