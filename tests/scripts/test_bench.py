"""Do the figures of scripts/bench mean what they say?"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pairs(monkeypatch):
    """Return the module, which is a script's and not on the path."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("benchmarks.pairs")


def test_ratio_is_the_median_over_pairs(pairs):
    found = pairs.ratio([1.1, 2.2, 30.0], [1.0, 2.0, 3.0])
    assert found.median == pytest.approx(1.1)
    assert found.low <= found.median <= found.high
    assert found.pairs == 3


def test_drift_of_the_machine_cancels_in_pairs(pairs):
    bases = [1.0 + 0.1 * number for number in range(20)]
    found = pairs.ratio([1.05 * base for base in bases], bases)
    assert (found.low, found.median, found.high) == pytest.approx((1.05, 1.05, 1.05))


def test_times_without_a_partner_are_refused(pairs):
    with pytest.raises(ValueError, match="2 times cannot be paired with 1"):
        pairs.ratio([1.0, 2.0], [1.0])


@pytest.mark.slow
def test_quick_bench_prints_json():
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--only", "gpt", "--json"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "scripts"))),
            "OMP_NUM_THREADS": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["overhead"]
    assert {row["tool"] for row in rows} == {"recorder", "hooks", "detect_anomaly"}
    for row in rows:
        assert 0.5 < row["ratio"]["median"] < 20
