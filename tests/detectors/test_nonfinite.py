"""NaN and infinity: where they count, where they do not, and what kind they make."""

import math

import pytest

from flightrec.detectors.nonfinite import NonFinite, kind_of, stage
from flightrec.errors import UsageError
from flightrec.types import Site
from tests.detectors.windows import (
    bad_output,
    findings,
    gradient,
    held,
    lost,
    output,
    record,
    window,
)

MASK = {"inf": 3, "low": -math.inf, "high": 2.0}


def told(*steps, **options):
    return list(NonFinite().check(window(*steps, **options)))


def sites(found):
    return [one.site.kind for one in found]


def test_healthy_step_says_nothing():
    assert told(record(0, output(), gradient(), held("buffer"), lost(1.0), loss=1.0)) == []


def test_rows_not_measured_say_nothing():
    assert told(record(0, (Site(module="", kind="param"), [math.nan] * 10))) == []


def test_each_bad_site_is_told_in_execution_order():
    step = record(0, bad_output(nan=2), gradient(math.nan, nan=1), held("buffer", inf=1),
                  lost(math.nan), loss=math.nan)  # fmt: skip
    found = told(step)
    assert sites(found) == ["output", "param_grad", "buffer", "loss"]
    assert [one.kind for one in found] == ["nan", "nan", "inf", "nan"]
    assert found[0].value == 2
    assert found[0].text == "output of the model: 2 of 8 elements are NaN or infinite"


def test_gradients_count_only_where_they_are_used():
    step = record(0, gradient(math.inf, inf=1), loss=1.0)
    assert told(step, update=False) == []
    assert sites(told(step, update=True)) == ["param_grad"]


def test_loss_scaler_warming_up_is_silent():
    steps = [record(n, gradient(math.inf, inf=8), loss=1.0, updated=False) for n in range(5)]
    assert findings(NonFinite(), steps, facts=[{"update": False}] * 5) == []


def test_mask_in_an_output_is_silent_while_the_step_goes_well():
    assert told(record(0, bad_output(**MASK), lost(1.0), loss=1.0)) == []
    assert told(record(0, bad_output(**MASK), gradient())) == []


def test_mask_is_silent_while_a_scaler_skips():
    step = record(0, bad_output(**MASK), gradient(math.inf, inf=1), loss=1.0, updated=False)
    assert told(step, update=False) == []


def test_logarithm_of_zero_is_told_where_the_step_goes_badly():
    step = record(3, bad_output(**MASK), lost(math.inf), loss=math.inf)
    found = told(step)
    assert sites(found) == ["output", "loss"]
    assert kind_of(found, step) == "inf"
    assert sites(told(record(3, bad_output(**MASK), gradient(math.nan, nan=1), loss=1.0))) == [
        "output", "param_grad",
    ]  # fmt: skip


def test_without_a_loss_minus_infinity_is_told():
    assert sites(told(record(0, bad_output(**MASK)), backward=False, update=False)) == ["output"]


def test_plus_infinity_is_told_even_where_the_loss_is_finite():
    step = record(0, bad_output(inf=1, low=0, high=math.inf), lost(1.0), loss=1.0)
    assert sites(told(step)) == ["output"]


def test_output_may_hold_what_it_held_in_steps_that_went_well():
    usual = record(0, bad_output(inf=1, low=0, high=math.inf), lost(1.0), loss=1.0)
    again = record(1, bad_output(inf=1, low=0, high=math.inf), lost(math.nan), loss=math.nan)
    assert sites(told(usual, again)) == ["loss"]
    worse = record(1, bad_output(nan=1), lost(math.nan), loss=math.nan)
    assert sites(told(usual, worse)) == ["output", "loss"]


def test_bad_steps_in_a_row_are_told_each_time():
    steps = [record(n, bad_output(nan=1), lost(math.nan), loss=math.nan) for n in range(3)]
    assert len(findings(NonFinite(), steps)) == 6


def test_buffer_is_told_once_when_it_goes_bad():
    steps = [
        record(0, held("buffer"), loss=1.0),
        record(1, held("buffer", nan=1), loss=1.0),
        record(2, held("buffer", nan=1), loss=1.0),
    ]
    (found,) = findings(NonFinite(), steps)
    assert (found.step, found.kind) == (1, "nan")
    assert len(told(steps[1])) == 1


def test_buffer_that_was_infinite_and_becomes_nan_is_told():
    assert len(told(record(0, held("buffer", inf=1)), record(1, held("buffer", nan=1)))) == 1


def test_mask_buffer_is_silent_whether_old_or_new():
    mask = held("buffer", leaf="mask", inf=28)
    assert told(record(0, mask), known_bad=[mask[0]]) == []
    assert told(record(0, held("buffer")), record(1, held("buffer"), mask)) == []
    assert len(told(record(0, held("buffer")), record(1, held("buffer", nan=1)))) == 1


def test_parameter_that_was_bad_before_the_run_is_silent_but_its_output_is_not():
    weight = held("param", module="layers.1", leaf="att", nan=8)
    found = told(record(0, weight, bad_output(nan=8)), known_bad=[weight[0]])
    assert sites(found) == ["output"]


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([bad_output(inf=1, low=0, high=math.inf), lost(math.nan)], "inf"),
        ([output(), lost(math.inf), gradient(math.nan, nan=1)], "inf"),
        ([gradient(math.inf, inf=1), gradient(math.nan, module="x", nan=1)], "nan"),
        ([held("param", nan=1), held("buffer", inf=1)], "inf"),
        ([held("param", nan=1)], "nan"),
    ],
)
def test_kind_is_that_of_the_first_bad_stage(rows, kind):
    loss = next((row[6] for site, row in rows if site.kind == "loss"), 1.0)
    step = record(0, *rows, loss=loss)
    assert kind_of(told(step), step) == kind


def test_stage_orders_findings():
    found = told(record(0, held("param", nan=1), gradient(math.nan, nan=1), bad_output(nan=1)))
    assert [stage(one) for one in sorted(found, key=stage)] == [0, 2, 4]


def test_settings_are_checked():
    with pytest.raises(UsageError, match=r"nonfinite\.limit must be at least 1, got 0"):
        NonFinite(limit=0)
    with pytest.raises(UsageError, match=r"nonfinite\.kinds knows .*; got 'input'"):
        NonFinite(kinds=("input",))
    assert list(NonFinite(limit=5).check(window(record(0, bad_output(nan=4))))) == []
