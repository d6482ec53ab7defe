"""Modules are found without being run, and recorded text is imported like any other."""

from __future__ import annotations

import importlib
import sys

import pytest

from flightrec.errors import CodeMissingError
from flightrec.importing import SourceFinder, import_module, locate


@pytest.fixture
def folder(tmp_path):
    """A folder off the path, with a package whose modules would all leave a trace."""
    for name in ("pkg/__init__.py", "pkg/inner/__init__.py", "pkg/inner/leaf.py", "space/leaf.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"raise RuntimeError({name!r})\n")
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(
            (str(tmp_path), "<", "None")
        ):
            del sys.modules[name]
    sys.path[:] = path


def test_finding_runs_nothing(folder):
    found = locate("pkg.inner.leaf", [folder])
    assert found is not None
    assert found.path == folder / "pkg/inner/leaf.py"
    assert found.files == (
        folder / "pkg/__init__.py",
        folder / "pkg/inner/__init__.py",
        folder / "pkg/inner/leaf.py",
    )
    assert "pkg" not in sys.modules


def test_namespace_packages_have_no_file(folder):
    found = locate("space.leaf", [folder])
    assert found is not None
    assert found.files == (folder / "space/leaf.py",)
    assert locate("space", [folder]).path is None


@pytest.mark.parametrize(
    "name", ["pkg.nothing", "nothing.at.all", "pkg.inner.leaf.deeper", "json.x"]
)
def test_what_is_nowhere(folder, name):
    assert locate(name, [folder]) is None


def test_loaded_and_built_in_modules():
    assert locate("json").path.name == "__init__.py"
    assert locate("json").files == ()
    assert locate("sys").path is None


def test_what_an_import_raises_is_told_in_one_line(folder):
    with pytest.raises(CodeMissingError, match=r"pkg\.inner\.leaf cannot be imported.*__init__"):
        import_module("pkg.inner.leaf", [folder])
    (folder / "needy.py").write_text("import no_such_thing\n")
    with pytest.raises(CodeMissingError, match="needy needs no_such_thing"):
        import_module("needy", [folder])
    (folder / "leaving.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(CodeMissingError, match="leaving"):
        import_module("leaving", [folder])
    with pytest.raises(CodeMissingError, match="not here"):
        import_module("no_such_thing", [folder])


def test_text_is_imported_with_packages_made_up(folder):
    texts = {
        "made.up.leaf": ("from made.side import value\nanswer = value + 1\n", "<leaf>"),
        "made.side": ("value = 41\n", "<side>"),
    }
    finder = SourceFinder(texts.get, frozenset({"made", "made.up"}))
    module = import_module("made.up.leaf", [], finder)
    assert module.answer == 42
    assert sys.modules["made.up"].__path__ == []
    assert finder not in sys.meta_path
    with pytest.raises(ImportError):
        importlib.import_module("made.other")


def test_the_path_is_left_with_the_folder_last(folder):
    (folder / "fine.py").write_text("x = 1\n")
    before = list(sys.path)
    assert import_module("fine", [folder]).x == 1
    assert sys.path == [*before, str(folder)]
