"""Gradients that are all exactly zero: a standstill, or nothing left to learn."""

import math

import pytest

from flightrec.detectors.zero_grad import ZeroGrad
from tests.detectors.windows import findings, gradient, record, window


def step(number, *norms, loss=1.0):
    rows = [gradient(norm, module=f"m{index}") for index, norm in enumerate(norms)]
    return record(number, *rows, loss=loss)


def test_all_zero_is_told_from_the_first_step():
    (found,) = findings(ZeroGrad(), [step(0, 0.0, 0.0)])
    assert (found.kind, found.site, found.level) == ("zeroed", None, "capture")


def test_one_that_is_not_zero_is_enough():
    assert findings(ZeroGrad(), [step(0, 0.0, 1e-30)]) == []


@pytest.mark.parametrize("loss", [0.0, -0.0, math.nan, math.inf])
def test_nothing_left_to_learn_and_bad_losses_are_silent(loss):
    assert findings(ZeroGrad(), [step(0, 0.0, loss=loss)]) == []


def test_without_a_loss_a_first_standstill_is_told_and_a_later_one_noted():
    (first,) = findings(ZeroGrad(), [step(0, 0.0, loss=None)])
    (later,) = findings(ZeroGrad(), [step(0, 1.0, loss=None), step(1, 0.0, loss=None)])
    assert (first.level, later.level) == ("capture", "note")


def test_needs_a_backward_and_gradients():
    assert list(ZeroGrad().check(window(step(0, 0.0), backward=False))) == []
    assert findings(ZeroGrad(), [record(0, loss=1.0)]) == []


def test_nonfinite_gradients_are_not_zero():
    assert findings(ZeroGrad(), [step(0, 0.0, math.nan)]) == []
