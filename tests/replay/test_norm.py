"""What is usual, and what counts as zero."""

from __future__ import annotations

import pytest

from replay.norm import Healthy, Judge
from replay.oplog import Leaf
from tests.replay.logs import GOOD, MINUS, NAN, PLUS, ZERO, Written, size


def one(flags, name="log", value="y"):
    log = Written()
    log.op(name, [("x", GOOD)], [(value, flags)])
    return log


def test_class_that_a_control_had_is_normal():
    judge = Judge(one(MINUS).log, Healthy([one(MINUS).log]))
    assert judge.normal(judge.log.ops[0])


@pytest.mark.parametrize("usual", [GOOD, PLUS])
def test_class_that_no_control_had_is_not(usual):
    judge = Judge(one(MINUS).log, Healthy([one(usual).log]))
    assert not judge.normal(judge.log.ops[0])


def test_good_value_is_not_normal_badness():
    judge = Judge(one(GOOD).log, Healthy([one(GOOD).log]))
    assert not judge.normal(judge.log.ops[0])


def test_turn_that_no_control_reached_is_compared_with_all_turns():
    control = one(MINUS).log
    failing = one(GOOD)
    failing.op("log", [("x", GOOD)], [("z", MINUS)])
    judge = Judge(failing.log, Healthy([control]))
    assert judge.normal(failing.log.ops[1])


def test_zero_is_relative_to_the_healthy_magnitude():
    judge = Judge(one(size(1e-4)).log, Healthy([one(size(1.0)).log]), zeros=True)
    assert judge.written(judge.log.ops[0]) == {"zero"}
    judge = Judge(one(size(1e-4)).log, Healthy([one(size(1e-3)).log]), zeros=True)
    assert judge.written(judge.log.ops[0]) == set()


def test_zero_is_exact_where_nothing_is_known():
    assert (
        Judge(one(size(1e-6)).log, Healthy([]), zeros=True).written(one(GOOD).log.ops[0]) == set()
    )
    judge = Judge(one(size(1e-6)).log, Healthy([]), zeros=True, floor=1e-5)
    assert judge.written(judge.log.ops[0]) == {"zero"}


def test_exact_zero_ignores_healthy_magnitudes():
    judge = Judge(one(size(1e-9)).log, Healthy([one(GOOD).log]), zeros=True, exact=True)
    assert judge.written(judge.log.ops[0]) == set()


def test_what_is_read_has_the_tolerance_of_its_writer():
    failing = one(size(1e-4))
    failing.op("mul", [("y", size(1e-4))], [("z", size(1e-4))])
    judge = Judge(failing.log, Healthy([one(GOOD).log]), zeros=True)
    assert judge.read(failing.log.ops[1].reads[0], 1) == {"zero"}


def test_zero_is_no_badness_unless_asked():
    judge = Judge(one(ZERO).log, Healthy([]))
    assert judge.written(judge.log.ops[0]) == set()


def leaf(name, role="parameter"):
    return Leaf(role, (name,), "m")


def test_mask_of_infinities_is_expected_and_a_nan_is_not():
    judge = Judge(Written().log, Healthy([]))
    assert judge.expected(leaf(":mask", "buffer"), frozenset({"-inf"}))
    assert not judge.expected(leaf(":mask", "buffer"), frozenset({"nan"}))
    assert not judge.expected(leaf(":mask", "buffer"), frozenset({"-inf", "+inf"}))
    assert not judge.expected(None, frozenset({"nan"}))


def test_zero_bias_is_expected_and_a_zero_weight_is_not():
    judge = Judge(Written().log, Healthy([]), zeros=True)
    zero = frozenset({"zero"})
    assert judge.expected(leaf(":layer.bias"), zero)
    assert judge.expected(leaf(":rnn.bias_ih_l0"), zero)
    assert not judge.expected(leaf(":bias.weight"), zero)


def test_leaf_is_expected_where_a_control_read_it_as_bad():
    control = Written()
    control.leaf("mask", "buffer")
    control.op("add", [("mask", NAN)], [("y", GOOD)])
    judge = Judge(Written().log, Healthy([control.log]))
    assert judge.expected(leaf(":mask", "buffer"), frozenset({"nan"}))
    assert not judge.expected(leaf(":mask", "buffer"), frozenset({"-inf"}))
