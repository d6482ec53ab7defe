"""Loss spikes: jumps are seen, and 500 steps of every healthy recipe stay silent."""

import numpy as np
import pytest

from flightrec.detectors.loss_spike import LossSpike
from flightrec.errors import UsageError
from tests.detectors.healthy import RECIPES
from tests.detectors.windows import findings, gradient, output, record, series


def spiked(losses, at, value):
    changed = np.array(losses, dtype=float)
    changed[at] = value
    return findings(LossSpike(), series(changed))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("seed", range(5))
def test_healthy_recipes_stay_silent(recipe, seed):
    losses, norms = recipe(np.random.default_rng(seed))
    assert findings(LossSpike(), series(losses, norms)) == []


@pytest.mark.parametrize("at", [40, 100, 300])
def test_language_model_that_leaps_is_seen(at):
    losses, _ = RECIPES["language_model"](np.random.default_rng(0))
    (found,) = spiked(losses, at, 5 * losses[at])
    assert (found.step, found.kind, found.detector) == (at, "loss_spike", "loss_spike")
    assert found.value > found.limit
    assert found.site.kind == "loss"


@pytest.mark.parametrize("before", [[0.9, 0.8, 0.85, 0.9, 0.8], [2.3, 1.9, 1.4, 1.2, 1.0, 0.8]])
def test_short_history_needs_a_larger_jump(before):
    assert spiked([*before, 0], len(before), 10.0) == []
    (found,) = spiked([*before, 0], len(before), 100.0)
    assert found.step == len(before)


def test_nothing_is_said_before_five_losses():
    assert spiked([1.0, 1.0, 1.0, 1.0, 1.0], 4, 1e6) == []


def test_growth_that_feeds_itself_is_left_to_its_infinity():
    assert findings(LossSpike(), series([0.9, 0.8, 0.9, 18, 2e5, 2e21])) == []


def test_losses_that_were_high_before_are_no_spike():
    losses = [1.0, 0.9, 50.0, 0.8, 0.9, 1.0, 0.7, 60.0]
    assert findings(LossSpike(), series(losses)) == []


def test_negative_losses_are_judged_by_their_deviations():
    losses = -3 + 0.1 * np.random.default_rng(0).standard_normal(200)
    assert spiked(losses, 150, -1.0) == []
    (found,) = spiked(losses, 150, 40.0)
    assert found.limit < 40


def test_zeros_between_do_not_hide_a_leap_or_make_one():
    losses = np.where(np.arange(200) % 3, 0.0, 0.3)
    assert spiked(losses, 150, 0.9) == []
    (found,) = spiked(losses, 150, 90.0)
    assert found.step == 150


def test_all_zero_so_far_says_nothing():
    assert spiked(np.zeros(100), 90, 1.0) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nonfinite_losses_are_another_detectors(value):
    assert spiked(np.ones(50), 40, value) == []


def test_steps_that_do_other_work_are_not_compared():
    critic = [output(module="critic"), gradient(module="critic")]
    generator = [*critic, output(module="generator"), gradient(module="generator")]
    steps = [
        record(step, *(generator if step in (150, 160, 170, 180, 190) else critic), loss=loss)
        for step, loss in enumerate(np.where(np.isin(np.arange(200), range(150, 200, 10)), 900, 3))
    ]
    assert findings(LossSpike(), steps) == []
    assert len(findings(LossSpike(), series([step.loss for step in steps]))) == 1


def test_limits_are_checked():
    with pytest.raises(UsageError, match=r"loss_spike\.quiet_ratio must be above 1, got 0\.5"):
        LossSpike(quiet_ratio=0.5)
    with pytest.raises(UsageError, match=r"loss_spike\.warmup must be at least 1, got 0"):
        LossSpike(warmup=0)
