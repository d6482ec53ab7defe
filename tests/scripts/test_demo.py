"""Does the demo name its three planted bugs?"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("sklearn") is None, reason="the extra [demo] is not installed"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Tell the story once, in an empty store and with a key of its own."""
    folder = tmp_path_factory.mktemp("demo")
    return subprocess.run(
        [sys.executable, "-m", "demo_digits", "--store", str(folder / "incidents")],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "scripts"))),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "160",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )


def test_all_three_bugs_are_named(told):
    assert told.returncode == 0, told.stdout + told.stderr
    assert "3 of 3 planted bugs named" in told.stdout
    assert told.stderr == ""


def test_story_shows_kinds_lines_and_fidelity(told):
    for word in ("zeroed", "nan", "inf", "bit_exact", "models.py", "attention", "standardise"):
        assert word in told.stdout
