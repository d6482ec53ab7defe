"""Does the demo name its three planted bugs?"""

from __future__ import annotations

import os
import re
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


def shape(line):
    """Return a line without what differs between runs: ids, numbers, the store, padding."""
    line = re.sub(r"[0-9a-f]{8}(-[0-9a-f]+)+|^[0-9a-f]{8}(-[0-9a-f]+)*(?= )", "ID", line.rstrip())
    line = re.sub(r"--store \S+", "--store STORE", re.sub(r"into \S+", "into STORE", line))
    return re.sub(r" +", " ", re.sub(r"\d+([.,:]\d+)*", "N", line)).strip()


def test_readme_shows_what_the_demo_prints(told):
    printed = {shape(line) for line in told.stdout.splitlines()}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for block in re.findall(r"```text\n(.*?)```", readme, re.DOTALL):
        for line in filter(None, block.splitlines()):
            if not set(line) <= {"\u2500"}:
                assert shape(line) in printed, line
