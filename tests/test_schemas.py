import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

import schemas

SCRIPT = Path(__file__).parents[1] / "scripts" / "schemas"


@pytest.fixture
def script(monkeypatch, tmp_path):
    """The script as a module, at work in an empty folder."""
    loader = SourceFileLoader("schemas_script", str(SCRIPT))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "schemas").mkdir()
    return module


def run(script, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["schemas", *arguments])
    return script.main()


def test_no_file_of_this_checkout_is_stale():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_it_can_be_started_by_its_name():
    assert os.access(SCRIPT, os.X_OK)
    assert SCRIPT.read_text().startswith("#!/usr/bin/env python3\n")


def test_a_stale_file_is_named_and_written_anew(script, monkeypatch, tmp_path, capsys):
    assert run(script, monkeypatch) == 0
    for name, text in script.generated().items():
        assert (tmp_path / "schemas" / name).read_text() == text
    assert run(script, monkeypatch, "--check") == 0
    (tmp_path / "schemas" / "layout.md").write_text("by hand")
    capsys.readouterr()
    assert run(script, monkeypatch, "--check") == 1
    assert capsys.readouterr().out == "schemas/layout.md is stale: run scripts/schemas\n"
    assert (tmp_path / "schemas" / "layout.md").read_text() == "by hand"
    assert run(script, monkeypatch) == 0
    assert capsys.readouterr().out == "schemas/layout.md written\n"
    assert run(script, monkeypatch, "--check") == 0


def test_a_missing_file_is_stale(script, monkeypatch, capsys):
    assert run(script, monkeypatch, "--check") == 1
    assert "schemas/incident.schema.json is stale" in capsys.readouterr().out


def test_every_json_file_is_json():
    names = [path.name for path in SCRIPT.parents[1].glob("schemas/*.json")]
    assert "incident.schema.json" in names
    for name in names:
        assert isinstance(json.loads(schemas.text(name)), dict)
