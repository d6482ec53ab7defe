"""Source text is found, cut, bounded and told apart from library code."""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import sys
import types
from pathlib import Path

import pytest
import torch

from flightrec import source


def decorate(thing):
    return thing


@decorate
class Outer:
    """A class with a nested one and an odd method."""

    class Inner:
        def method(self):
            return 1

    def method(self):
        def inner():
            return 2

        return inner


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(
            (str(tmp_path), "<", "None")
        ):
            del sys.modules[name]


def test_text_of_a_class_includes_its_decorators():
    found = source.source_text(Outer)
    assert found is not None
    assert found.name == f"{__name__}:Outer"
    assert found.text.startswith("@decorate\nclass Outer:")
    assert found.text.rstrip().endswith("return inner")
    assert found.file == "tests/test_source.py"
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert lines[found.line - 1] == "@decorate"


def test_text_of_nested_definitions():
    inner = source.source_text(Outer.Inner)
    local = source.source_text(Outer().method())
    assert inner is not None
    assert inner.text.lstrip().startswith("class Inner")
    assert local is not None
    assert "return 2" in local.text


def test_builtins_and_generated_classes_have_no_text():
    assert source.source_text(int) is None
    assert source.source_text(len) is None
    assert source.source_text(type("Made", (), {"__module__": __name__})) is None


def test_notebook_cells_are_found_through_their_functions():
    text = "class Cell:\n    def forward(self):\n        return 3\n"
    name = "<ipython-input-7-abc>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), space)
    found = source.source_text(space["Cell"])
    assert found is not None
    assert (found.file, found.line, found.text) == (name, 1, text)


def test_installed_code_is_not_the_users():
    assert not source.is_user_module("torch.nn.functional")
    assert not source.is_user_module("json")
    assert not source.is_user_module("flightrec.source")
    assert not source.is_user_module("no.such.module")
    assert source.is_user_module(__name__)
    assert source.is_installed(torch.__file__)
    assert not source.is_installed(__file__)


def test_paths_are_relative_to_the_repository(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    file = write(tmp_path, "pkg/model.py", "")
    assert source.relative_path(file) == "pkg/model.py"
    assert source.relative_path("<stdin>") == "<stdin>"


def test_paths_without_repository_are_relative_to_the_current_folder(tmp_path, monkeypatch):
    file = write(tmp_path, "pkg/model.py", "")
    monkeypatch.setattr(source, "repository_root", lambda folder: None)
    assert source.relative_path(file) == str(file.resolve())
    monkeypatch.chdir(tmp_path)
    assert source.relative_path(file) == "pkg/model.py"


def test_collect_follows_imports_of_the_user(project):
    write(project, "mine/__init__.py", "")
    write(project, "mine/parts.py", "import math\n\ndef scale(x):\n    return x * math.pi\n")
    write(
        project,
        "mine/net.py",
        "import torch\nfrom mine.parts import scale\n\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x):\n        return scale(x)\n",
    )
    net = importlib.import_module("mine.net")
    found = source.collect([net.Net, torch.nn.Linear, len])
    names = [entry.name for entry in found.texts]
    assert names[0] == "mine.net:Net"
    assert {"mine.net", "mine.parts"} <= set(names)
    assert not any(name.startswith("torch") for name in names)
    assert found.not_captured == ()
    assert found.files["mine.net"].path == str((project / "mine/net.py").resolve())
    text = next(entry.text for entry in found.texts if entry.name == "mine.net")
    assert found.files["mine.net"].hash == source.text_hash(text)
    assert text == (project / "mine/net.py").read_text()


def test_collect_keeps_within_its_limits_and_says_so(project):
    write(project, "big.py", "class A:\n    def f(self): return 1\n" + "# pad\n" * 200)
    module = importlib.import_module("big")
    found = source.collect([module.A], file_bytes=100)
    assert [entry.name for entry in found.texts] == ["big:A"]
    assert [note["what"] for note in found.not_captured] == ["source of big"]
    assert "big" in found.files
    nothing = source.collect([module.A], total_bytes=10)
    assert nothing.texts == ()
    assert len(nothing.not_captured) == 2


def test_collect_says_what_has_no_text(project):
    module = types.ModuleType("typed")
    module.__file__ = str(write(project, "typed.py", "x = 1\n"))
    sys.modules["typed"] = module
    made = type("Made", (), {"__module__": "typed"})
    found = source.collect([made])
    assert {"what": "source of typed:Made", "why": "no text of it was found"} in found.not_captured


def test_collect_joins_notebook_cells(monkeypatch):
    notebook = types.ModuleType("__main__")
    notebook.In = ["", "%matplotlib inline", "import math", "class Cell:\n    pass"]
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    exec("class Cell:\n    pass", vars(notebook))
    found = source.collect([notebook.Cell])
    text = next(entry for entry in found.texts if entry.name == "__main__")
    assert text.text == "\nimport math\nclass Cell:\n    pass"
    assert found.files["__main__"].path is None


def test_the_last_of_equal_definitions_counts():
    text = "if a:\n    class A:\n        x = 1\nelse:\n    class A:\n        x = 2\n"
    found = source.cut(text, "A")
    assert found is not None
    assert found[1] == "    class A:\n        x = 2\n"
    assert source.cut("not python(", "A") is None
