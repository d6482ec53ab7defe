"""Outputs that become zero, and the many healthy reasons for an output to be zero or small."""

import numpy as np
import pytest

from flightrec.detectors.zeroed import Zeroed
from flightrec.errors import UsageError
from tests.detectors.windows import bad_output, findings, output, record, window


def run(*values, **options):
    return findings(Zeroed(), [record(n, output(v)) for n, v in enumerate(values)], **options)


def test_exact_zero_after_healthy_steps():
    (found,) = run(0.9, 1.1, 0.4, 0.0)
    assert (found.step, found.kind, found.value) == (3, "zeroed", 0.0)
    assert found.text == "output of the model is zero: absmax 0, usually 0.9"


def test_rounding_left_by_a_normalisation_counts_as_zero():
    (found,) = run(0.9, 1.1, 1.0, 1e-6)
    assert found.limit == pytest.approx(1e-3)


def test_small_is_not_zero():
    assert run(0.9, 1.1, 1.0, 2e-3, 0.9) == []


def test_exact_zero_without_history():
    (found,) = run(0.0)
    assert (found.step, found.limit) == (0, 0.0)
    assert run(1e-30) == []


def test_reported_once_and_not_while_it_lasts():
    assert [one.step for one in run(1.0, 1.0, 0.0, 0.0, 0.0)] == [2]


def test_inference_counts_too():
    steps = [record(n, output(v), updated=False) for n, v in enumerate([1.0, 1.0, 0.0])]
    facts = [{"backward": False, "update": False}] * 3
    assert len(findings(Zeroed(), steps, facts=facts)) == 1


def test_zero_head_that_learns_is_silent():
    assert list(Zeroed().check(window(record(0, output(0.0)), learning_from_zero=True))) == []


def test_evaluation_before_the_first_backward_of_a_run_that_trains_is_silent():
    one = window(record(0, output(0.0)), trains=True, backward=False, update=False)
    assert list(Zeroed().check(one)) == []
    assert len(list(Zeroed().check(window(record(0, output(0.0)), trains=True)))) == 1


def test_head_grows_from_zero():
    steps = [0.0, *np.geomspace(1e-4, 5, 100)]
    facts = [{"learning_from_zero": True}] + [{}] * 100
    assert run(*steps, facts=facts) == []


def test_sparse_output_is_told_at_most_once():
    rng = np.random.default_rng(0)
    values = np.where(rng.random(500) < 0.2, 0.0, 1 + rng.random(500))
    assert len(run(*values)) == 1


def test_outputs_that_vary_by_decades_are_silent():
    rng = np.random.default_rng(1)
    for spread in (0.5, 1.0, 1.5):
        assert run(*np.exp(spread * rng.standard_normal(500))) == []


def test_outputs_that_vary_by_decades_and_become_zero_are_told():
    rng = np.random.default_rng(1)
    values = np.exp(rng.standard_normal(100))
    values[60] = 0.0
    assert [one.step for one in run(*values)] == [60]


def test_slow_shrinking_is_silent():
    assert run(*np.geomspace(1, 1e-9, 500)) == []


def test_scalars_and_unmeasured_outputs_never_count():
    assert findings(Zeroed(), [record(0, output(0.0, numel=1))]) == []
    assert findings(Zeroed(), [record(0, bad_output(nan=8))]) == []
    assert findings(Zeroed(), [record(0, output(0.0, numel=np.nan))]) == []


def test_nonfinite_steps_between_do_not_matter():
    steps = [record(0, output()), record(1, bad_output(nan=1)), record(2, output(0.0))]
    assert [one.step for one in findings(Zeroed(), steps)] == [2]


def test_site_is_found_wherever_its_row_is():
    steps = [
        record(0, output(module="a"), output(2.0, module="b")),
        record(1, output(0.0, module="b"), output(module="a")),
    ]
    (found,) = findings(Zeroed(), steps)
    assert found.site.module == "b"


def test_call_made_for_the_first_time_is_compared_with_the_other_calls():
    sparse = [record(0, output(), output(0.0, call=1)), record(1, output(), output(0.0, call=2))]
    assert [one.step for one in findings(Zeroed(), sparse)] == [0]
    fresh = [record(0, output()), record(1, output(), output(0.0, call=1))]
    (found,) = findings(Zeroed(), fresh)
    assert found.limit == pytest.approx(1e-3)


def test_settings_are_checked():
    with pytest.raises(UsageError, match=r"zeroed\.ratio must be between 0 and 1, got 2"):
        Zeroed(ratio=2)
    with pytest.raises(UsageError, match=r"zeroed\.recent must be at least 1, got 0"):
        Zeroed(recent=0)
