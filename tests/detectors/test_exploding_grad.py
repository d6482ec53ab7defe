"""Exploding gradients: growth and jumps are seen, healthy recipes stay silent."""

import math

import numpy as np
import pytest

from flightrec.detectors.exploding_grad import ExplodingGrad
from flightrec.errors import UsageError
from tests.detectors.healthy import RECIPES
from tests.detectors.windows import findings, gradient, record, series

NEVER_CLEARED = [
    0.383, 0.371, 0.367, 0.342, 0.561, 0.564, 1.08, 1.74, 1.43, 1.64, 1.74, 1.57, 1.7, 2.02,
    3.92, 4.36, 4.45, 6.61, 6.48, 6.6, 6.75, 6.57, 7.49, 9.73, 9.91, 9.93, 9.73, 9.72, 107, 107,
]  # fmt: skip
"""Norms of a small GRU whose gradients are never cleared (the reported failure espnet 3283)."""


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("seed", range(5))
def test_healthy_recipes_stay_silent(recipe, seed):
    losses, norms = recipe(np.random.default_rng(seed))
    assert findings(ExplodingGrad(), series(losses, norms)) == []


def test_gradients_never_cleared_are_seen_where_they_pass_a_hundredfold():
    (found,) = findings(ExplodingGrad(), series(norms=NEVER_CLEARED))
    assert (found.step, found.kind, found.site) == (28, "exploding_grad", None)
    assert found.limit == pytest.approx(37.1)


@pytest.mark.parametrize("factor", [1.5, 2, 4])
def test_growth_by_a_factor_per_step_is_seen_once_it_is_a_hundredfold(factor):
    norms = factor ** np.arange(30.0)
    found = findings(ExplodingGrad(), series(norms=norms))
    assert norms[found[0].step] > 100 * norms[2] >= norms[found[0].step - 1] * (factor < 4)


def test_jump_is_seen():
    norms = np.exp(0.3 * np.random.default_rng(1).standard_normal(100))
    norms[60] = 400
    (found,) = findings(ExplodingGrad(), series(norms=norms))
    assert found.step == 60


def test_hard_sample_in_a_learned_run_is_no_explosion():
    norms = np.concatenate([np.full(8, 5.0), np.full(300, 1e-4)])
    norms[250] = 10.0
    assert findings(ExplodingGrad(), series(norms=norms)) == []
    assert findings(ExplodingGrad(), series(norms=norms), early=0) != []


def test_self_feeding_growth_in_few_steps_is_left_to_its_infinity():
    norms = [0.688, 0.972, 4.32, 391, 1.58e7, 6.63e23, math.inf]
    assert findings(ExplodingGrad(), series(norms=norms)) == []


def test_needs_a_backward_and_a_finite_norm():
    steps = series(norms=NEVER_CLEARED)
    assert findings(ExplodingGrad(), steps, facts=[{"backward": False}] * len(steps)) == []
    assert findings(ExplodingGrad(), series(norms=[1, 1, 1, 1, 1, math.inf])) == []


def test_text_names_the_largest_gradient():
    steps = [
        record(step, gradient(norm / 2, module="a"), gradient(norm, module="b"), norm=norm)
        for step, norm in enumerate([1.0] * 10 + [1e4])
    ]
    (found,) = findings(ExplodingGrad(), steps)
    assert found.text.endswith("10000 times that of the first steps; largest at b.weight")


def test_limits_are_checked():
    with pytest.raises(UsageError, match=r"exploding_grad\.ratio must be above 1, got 0"):
        ExplodingGrad(ratio=0)
