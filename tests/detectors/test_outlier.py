"""The tail rule: its chance of a false alarm is what its docstring says."""

import numpy as np

from flightrec.detectors._outlier import FEW, outlier


def alarms(rng, draw, count, runs):
    samples = draw(rng, (runs, count + 1))
    return sum(outlier(list(row[:-1]), float(row[-1])).beyond_tail() for row in samples) / runs


def test_power_laws_of_any_exponent_are_equally_rare():
    rng = np.random.default_rng(0)
    rates = [alarms(rng, lambda r, n, a=a: 1 + r.pareto(a, n), 8, 20_000) for a in (0.5, 1, 3)]
    assert 0.7e-2 < min(rates) <= max(rates) < 1.3e-2
    assert alarms(rng, lambda r, n: 1 + r.pareto(1, n), FEW, 20_000) < 1e-3


def test_log_normal_values_are_rarer_still():
    rng = np.random.default_rng(0)
    assert alarms(rng, lambda r, n: np.exp(r.standard_normal(n)), FEW, 20_000) < 2e-4


def test_distance_is_counted_in_logarithms():
    seen = outlier([1.0, 10.0, 1.0], 100.0)
    assert seen.reach > 0
    assert round(seen.rise / seen.reach, 6) == 2
    assert not seen.beyond_tail()
    assert outlier([1.0, 10.0, 1.0], 1e6).beyond_tail()


def test_constant_values_have_no_tail():
    assert outlier([1.0] * 5, 1.1).beyond_tail()
    assert outlier([1.0] * 5, 1.0).beyond_tail() is False
