"""How an operator or a tensor is named."""

from __future__ import annotations

from replay.choice import Candidate
from replay.culprit import blame_operator, owner_of
from replay.oplog import Leaf
from tests.replay.logs import GOOD, Written


def test_operator_is_named_with_module_call_and_line():
    log = Written()
    op = log.op("sqrt", [("x", GOOD)], module="layers.0", place=(__file__, 1))
    found = blame_operator(log.log, op)
    assert (found.phase, found.module, found.module_type) == ("forward", "layers.0", "Linear")
    assert (found.op, found.call, found.root_call, found.backward_of) == (
        "aten.sqrt.default", 0, 0, None,
    )  # fmt: skip
    assert found.source.file == "tests/replay/test_culprit.py"


def test_operator_of_the_backward_pass_names_the_forward_one():
    log = Written()
    log.op("sqrt")
    op = log.op("div", stage="backward", forward=0)
    assert blame_operator(log.log, op).backward_of == "aten.sqrt.default"


def test_operator_outside_every_module_has_none():
    log = Written()
    op = log.op("mean", stage="loss", module=None)
    assert (blame_operator(log.log, op).phase, blame_operator(log.log, op).module) == ("loss", None)


def test_operator_that_spoils_a_buffer_makes_a_parameter_failure():
    log = Written()
    op = log.op("div")
    assert blame_operator(log.log, op, state=True).phase == "parameter"


def test_accumulated_gradient_belongs_to_the_owner_of_its_parameter():
    log = Written()
    log.leaf("w", module="head", path=":head.weight")
    op = log.op("add_", stage="backward", module=None, owner=":head.weight")
    assert blame_operator(log.log, op).module == "head"


def leaves(*names, classes=frozenset({"nan"})):
    found = []
    for name in names:
        owner = name.rpartition(".")[0].lstrip(":")
        leaf = Leaf("parameter", (name,), owner)
        found.append(Candidate(reason="leaf", op=0, leaf=leaf, classes=classes))
    return found


def test_owner_of_the_first_bad_parameter_is_named():
    found = leaves(":a.weight", ":a.bias", ":b.scale")
    assert owner_of(found, parameters=30).module == "a"


def test_several_alike_have_no_owner():
    assert owner_of(leaves(":l.0.weight", ":l.1.weight"), parameters=30) is None
    assert owner_of(leaves(":a.weight", ":b.scale", ":c.gain"), parameters=4) is None
    zero = frozenset({"zero"})
    assert owner_of(leaves(":a.weight", ":b.scale", classes=zero), parameters=30) is None
    assert owner_of(leaves(":a.weight", classes=zero), parameters=30).module == "a"
