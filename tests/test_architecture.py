"""Is the house that docs/architecture.md draws the one that stands here?"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_house_is_up_to_date():
    ran = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "house.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


def test_files_that_the_text_names_are_there():
    for name in re.findall(r"`((?:flightrec|replay|schemas|scripts|tests|docs)/[\w./-]+)`", PAGE):
        assert (ROOT / name).exists(), name


def test_each_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in project["dependencies"]:
        name = re.match(r"[\w-]+", requirement).group()
        assert f"| {name} |" in PAGE, name
