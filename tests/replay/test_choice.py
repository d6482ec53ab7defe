"""Producers, not propagators: who is blamed in logs written by hand."""

from __future__ import annotations

from replay.choice import choose
from replay.norm import Healthy, Judge
from replay.search import trace_back
from tests.replay.logs import GOOD, MINUS, NAN, PLUS, ZERO, Written


def blame(log, last, *, controls=(), zeros=False, backward=False):
    judge = Judge(log.log, Healthy([each.log for each in controls]), zeros=zeros)
    start = (log.span(*last), len(log.log.ops))
    return choose(judge, trace_back(judge, [start]), backward=backward)


def reasons(found):
    return [(each.reason, each.op) for each in found]


def test_first_operator_with_good_inputs_is_blamed():
    log = Written()
    log.op("log", [("x", GOOD)], [("a", MINUS)])
    log.op("sub", [("a", MINUS)], [("b", NAN)])
    log.op("mm", [("b", NAN)], [("c", NAN)])
    assert reasons(blame(log, ("c", NAN)))[0] == ("origin", 0)


def test_mask_is_intended_and_the_nan_born_of_it_is_not():
    log = Written()
    log.op("masked_fill", [("x", GOOD)], [("a", MINUS)], constant=True)
    log.op("add", [("a", MINUS), ("y", GOOD)], [("b", MINUS)])
    log.op("_softmax", [("b", MINUS)], [("c", NAN)])
    assert reasons(blame(log, ("c", NAN)))[0] == ("birth", 2)


def test_infinity_that_healthy_steps_have_is_no_culprit():
    def step(last):
        log = Written()
        log.op("log", [("x", GOOD)], [("a", MINUS)])
        log.op("softmax", [("a", MINUS)], [("b", last)])
        return log

    found = blame(step(NAN), ("b", NAN), controls=[step(GOOD)])
    assert reasons(found) == [("birth", 1)]


def test_usual_infinity_that_gets_further_than_usual_is_a_suspect():
    def step(last):
        log = Written()
        log.op("log", [("x", GOOD)], [("a", MINUS)])
        log.op("where", [("a", MINUS)], [("b", last)])
        log.op("sum", [("b", last)], [("c", last)])
        return log

    found = blame(step(MINUS), ("c", MINUS), controls=[step(GOOD)])
    assert reasons(found)[0] == ("suspect", 1)


def test_only_masks_means_nobody_is_blamed():
    log = Written()
    log.op("full", [], [("a", MINUS)], constant=True)
    log.op("add", [("a", MINUS)], [("b", MINUS)])
    assert blame(log, ("b", MINUS)) == []


def test_bad_parameter_is_a_leaf():
    log = Written()
    log.leaf("weight", module="head", path=":head.weight")
    log.op("mm", [("x", GOOD), ("weight", NAN)], [("y", NAN)])
    (found, *_) = blame(log, ("y", NAN))
    assert (found.reason, found.leaf.module, found.op) == ("leaf", "head", 0)


def test_overflow_upstream_is_blamed_for_a_zero():
    log = Written()
    log.op("pow", [("x", GOOD)], [("a", PLUS)])
    log.op("rsqrt", [("a", PLUS)], [("b", ZERO)])
    log.op("mul", [("x", GOOD), ("b", ZERO)], [("c", ZERO)])
    assert reasons(blame(log, ("c", ZERO), zeros=True))[0] == ("origin", 0)


def test_fresh_zeros_and_zero_biases_are_no_bad_inputs():
    log = Written()
    log.leaf("bias", path=":norm.bias")
    log.op("zeros_like", [], [("o", ZERO)], constant=True)
    log.op("clone", [("o", ZERO)], [("p", ZERO)])
    log.op("where", [("x", GOOD), ("p", ZERO)], [("a", ZERO)])
    log.op("norm", [("a", ZERO), ("bias", ZERO)], [("b", ZERO)])
    assert reasons(blame(log, ("b", ZERO), zeros=True))[0] == ("origin", 2)


def test_zero_weight_is_a_leaf():
    log = Written()
    log.leaf("weight", path=":head.weight")
    log.op("mm", [("x", GOOD), ("weight", ZERO)], [("y", ZERO)])
    assert reasons(blame(log, ("y", ZERO), zeros=True))[0] == ("leaf", 0)


def test_backward_search_takes_values_of_the_forward_as_they_are():
    log = Written()
    log.op("exp", [("x", GOOD)], [("a", PLUS)])
    log.op("reciprocal", [("a", PLUS)], [("b", GOOD)])
    log.op("mul", [("g", GOOD), ("a", PLUS)], [("d", NAN)], stage="backward")
    log.op("mm", [("d", NAN)], [("e", NAN)], stage="backward")
    assert reasons(blame(log, ("e", NAN), backward=True))[0] == ("birth", 2)
    assert reasons(blame(log, ("e", NAN)))[0] == ("origin", 0)


def test_gradient_from_outside_is_told():
    log = Written()
    log.op("mm", [("g", NAN)], [("e", NAN)], stage="backward")
    assert reasons(blame(log, ("e", NAN), backward=True))[0] == ("gradient", 0)


def test_unwritten_memory_is_the_producer():
    log = Written()
    log.op("empty", [], [log.span("a", None)], unwritten=True, constant=True)
    log.log.flags[log.log.ops[0].writes[0].slot] = None
    log.op("mul", [("a", NAN)], [("b", NAN)])
    assert reasons(blame(log, ("b", NAN)))[0] == ("origin", 0)


def test_weight_that_the_forward_swallowed_is_blamed_for_its_gradient():
    log = Written()
    log.leaf("weight", module="to_q", path=":to_q.weight")
    log.op("mm", [("x", GOOD), ("weight", NAN)], [("q", NAN)])
    log.op("attention", [("q", NAN)], [("y", GOOD)])
    log.op("attention_backward", [("g", GOOD), ("q", NAN)], [("d", NAN)], stage="backward")
    found = blame(log, ("d", NAN), backward=True)
    assert reasons(found)[0] == ("leaf", 0)
    assert found[0].leaf.module == "to_q"


def test_weight_is_no_less_bad_because_controls_went_through_it_too():
    def step(last):
        log = Written()
        log.leaf("weight", module="to_q", path=":to_q.weight")
        log.op("mm", [("x", GOOD), ("weight", NAN)], [("q", NAN)])
        log.op("attention", [("q", NAN)], [("y", last)])
        return log

    found = blame(step(NAN), ("y", NAN), controls=[step(GOOD)])
    assert reasons(found)[0] == ("leaf", 0)


def test_buffer_whose_bad_part_is_used_for_the_first_time():
    def step(last):
        log = Written()
        log.leaf("table", role="buffer", module="m", path=":table")
        log.op("index", [("table", NAN)], [("y", last)])
        return log

    found = blame(step(NAN), ("y", NAN), controls=[step(GOOD)])
    assert reasons(found)[0] == ("leaf", 0)
