"""Does the documented way of adding a plug-in work as it is written?"""

import re
import sys
from pathlib import Path

import pytest

from flightrec.detectors import config_of, from_config, select
from flightrec.registry import KINDS, Registry
from tests.detectors.windows import findings, series

ROOT = Path(__file__).parents[1]


@pytest.fixture
def documented(tmp_path, monkeypatch):
    """The detector of CONTRIBUTING.md, dropped into a package of detectors."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    folder = tmp_path / "plugged_in"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "stuck_loss.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(KINDS, "detectors", ("plugged_in", "Detector"))
    yield Registry("detectors").load("stuck_loss")
    for name in [name for name in sys.modules if name.startswith("plugged_in")]:
        del sys.modules[name]


def test_the_detector_of_the_guide_works(documented):
    (chosen,) = select()
    assert from_config(config_of(chosen)) == documented()
    (found, *_) = findings(documented(), series([3.0, 2.0] + [1.5] * 30))
    assert (found.step, found.kind) == (22, "stuck_loss")
    assert findings(documented(), series([1 / (step + 1) for step in range(100)])) == []
    with pytest.raises(ValueError, match=r"stuck_loss\.steps must be at least 2, got 0"):
        documented(steps=0)


def test_every_kind_is_in_the_guide():
    text = (ROOT / "docs" / "extending.md").read_text()
    for package, attribute in KINDS.values():
        assert f"`{package.replace('.', '/')}/<name>.py` | `{attribute}" in text


def test_every_detector_is_in_the_guide():
    text = (ROOT / "docs" / "extending.md").read_text()
    for name in Registry("detectors"):
        assert f"| `{name}` |" in text


def test_files_named_in_the_guide_exist():
    for name in ("CONTRIBUTING.md", "docs/extending.md"):
        text = (ROOT / name).read_text()
        for path in re.findall(
            r"`((?:tests|flightrec|replay|docs|scripts)/[\w/]+\.(?:py|md))`", text
        ):
            if "stuck_loss" not in path:
                assert (ROOT / path).exists(), f"{name} names {path}"
