"""Does a fragment in changes/ tell users of every change since the last release?"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KINDS = ("added", "changed", "fixed", "removed", "docs")
SOURCES = ("flightrec", "replay", "schemas")
FRAGMENTS = sorted(path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md")


def git(*words):
    """Return what git prints, or None where this is no clone or there is no such thing."""
    try:
        ran = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30
        )
    except FileNotFoundError:
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda path: path.name)
def test_fragment_has_a_number_a_kind_and_words(fragment):
    assert re.fullmatch(rf"\d+(\.\d+)?\.({'|'.join(KINDS)})\.md", fragment.name)
    text = fragment.read_text()
    assert len(text.split()) >= 5
    assert text.isascii()
    assert text.endswith("\n")


def test_changed_sources_come_with_a_fragment():
    if git("rev-parse", "--show-toplevel") != str(ROOT):
        pytest.skip("not a clone of this repository")
    release = git("describe", "--tags", "--abbrev=0")
    if release is None:
        assert FRAGMENTS, "nothing was released yet, so changes/ must tell of what there is"
        return
    if git("diff", "--name-only", release, "--", *SOURCES):
        added = git("diff", "--name-only", "--diff-filter=AM", release, "--", "changes")
        assert added, f"sources changed since {release}: say so in changes/<number>.<kind>.md"


def test_branch_that_changes_sources_brings_a_fragment():
    base = git("merge-base", "HEAD", "origin/main")
    if base is None or base == git("rev-parse", "HEAD"):
        pytest.skip("nothing here that origin/main does not have")
    if git("diff", "--name-only", base, "--", *SOURCES):
        assert git("diff", "--name-only", base, "--", "changes"), "add changes/<number>.<kind>.md"
