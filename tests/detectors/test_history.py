"""Finding sites in earlier steps, and telling steps that went well."""

import math

from flightrec.detectors._history import alike, places, row_of, survived, upper_median
from flightrec.types import Site
from tests.detectors.windows import gradient, output, record

OUT = Site(module="", kind="output")


def test_row_is_found_with_and_without_a_hint():
    one = record(0, output(module="a"), output(module="b"))
    site = Site(module="b", kind="output")
    assert [row_of(one, site, hint) for hint in (-1, 0, 1, 7)] == [1, 1, 1, 1]
    assert row_of(one, OUT, 0) is None


def test_other_calls_stand_for_a_call_that_was_never_made():
    steps = [record(0, output(call=0), output(call=1)), record(1, output(call=0))]
    assert places(steps, OUT) == [(steps[0], 0), (steps[1], 0)]
    assert places(steps, Site(module="", kind="output", call=5)) == [
        (steps[0], 0), (steps[0], 1), (steps[1], 0),
    ]  # fmt: skip
    assert places(steps, Site(module="x", kind="output")) == []


def test_a_step_went_well_where_loss_and_used_gradients_are_finite():
    bad = gradient(math.inf, inf=1)
    assert survived(record(0, gradient(), loss=1.0), updated=True)
    assert survived(record(0, gradient()), updated=True)
    assert survived(record(0, bad, loss=1.0), updated=False)
    assert not survived(record(0, bad, loss=1.0), updated=True)
    assert not survived(record(0, gradient(), loss=math.nan), updated=True)
    assert not survived(record(0, bad), updated=False)
    assert not survived(record(0, output()), updated=False)


def test_alike_steps_called_the_same_modules_and_trained_the_same_parameters():
    critic = record(0, output(module="critic"), gradient(module="critic"))
    generator = record(1, output(module="critic"), gradient(module="generator"))
    again = record(2, output(module="critic"), output(module="critic", call=1),
                   gradient(module="critic"))  # fmt: skip
    assert alike([critic, generator], again) == [critic]


def test_upper_median_takes_the_greater_middle():
    assert upper_median([3, 1, 2, 4]) == 3
    assert upper_median([2, 9, 1]) == 2
