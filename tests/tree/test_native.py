"""Functions and enum members written in C."""

import operator

import pytest
import torch

from flightrec.errors import CannotRebuildError
from flightrec.tree import Decoder
from flightrec.tree.native import native_node


def test_members_by_name(travel, resolver):
    kind = torch._C._SDPBackend
    assert travel([kind.MATH, kind.FLASH_ATTENTION]) == [kind.MATH, kind.FLASH_ATTENTION]
    node = native_node(kind.MATH)
    with pytest.raises(CannotRebuildError, match="SIMPLE"):
        Decoder(None, resolver).decode({**node, "name": "SIMPLE"})
    for other in ("_set_worker_pids", "Generator", "nothing"):
        with pytest.raises(CannotRebuildError, match="no enum"):
            Decoder(None, resolver).decode({**node, "class": other})


def test_functions_by_name():
    assert native_node(torch.Tensor.relu)["name"].endswith(".relu")
    assert native_node(str.upper) == {"$": "function", "name": "builtins:str.upper"}


def test_anything_else():
    assert native_node(iter([])) is None
    assert native_node(operator.itemgetter(1)) is None
