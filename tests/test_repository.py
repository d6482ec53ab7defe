"""Commit and diff of the script's repository, and every reason for which there may be none."""

import os
import subprocess
import sys
import time

import pytest

from flightrec import repository
from flightrec.repository import collect_code

WHO = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")


def git(folder, *words):
    done = subprocess.run(
        ["git", "-C", folder, *WHO, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository whose folder `scripts` holds the running script."""
    folder = tmp_path / "project"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "train.py").write_text("lr = 1\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    script = str(folder / "scripts" / "train.py")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
    return folder


def test_clean_repository(project):
    assert collect_code(diff_bytes=1000) == {
        "repository": "scripts",
        "commit": git(project, "rev-parse", "HEAD"),
        "dirty": False,
        "diff": "",
        "diff_truncated": False,
    }


def test_diff_and_untracked_names(project):
    (project / "scripts" / "train.py").write_text("lr = 2\n")
    (project / "notes \u00e9.txt").write_text("secret\n")
    code = collect_code(diff_bytes=10_000)
    assert code["dirty"] is True
    assert "-lr = 1\n+lr = 2\n" in code["diff"]
    assert code["diff"].endswith("Untracked: notes \u00e9.txt\n")
    assert "secret" not in code["diff"]
    assert code["diff_truncated"] is False


def test_diff_is_bounded_in_bytes(project):
    (project / "scripts" / "train.py").write_text("\u00e9" * 100_000)
    code = collect_code(diff_bytes=501)
    assert 499 <= len(code["diff"].encode()) <= 501
    assert (code["dirty"], code["diff_truncated"]) == (True, True)


def test_nothing_is_written_into_the_repository(project):
    os.utime(project / "scripts" / "train.py", (1, 1))
    before = {path: path.stat().st_mtime_ns for path in (project / ".git").rglob("*")}
    code = collect_code(diff_bytes=1000)
    assert (code["dirty"], code["diff"]) == (False, "")
    assert {path: path.stat().st_mtime_ns for path in (project / ".git").rglob("*")} == before


def test_helpers_of_the_repository_are_not_run(project):
    (project / ".gitattributes").write_text("*.py diff=loud\n")
    for name in ("diff.external", "diff.loud.command", "diff.loud.textconv", "core.fsmonitor"):
        git(project, "config", name, f"touch {project / 'ran'}; false")
    (project / "scripts" / "train.py").write_text("lr = 2\n")
    assert "+lr = 2" in collect_code(diff_bytes=1000)["diff"]
    assert not (project / "ran").exists()


def test_repository_without_a_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "a.py"), raising=False)
    git(tmp_path, "init", "-q")
    code = collect_code(diff_bytes=1000)
    assert (code["repository"], code["commit"], code["dirty"]) == (".", None, False)


def test_variables_of_a_hook_do_not_mislead(project, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    code = collect_code(diff_bytes=1000)
    monkeypatch.undo()
    assert code["commit"] == git(project, "rev-parse", "HEAD")


def test_no_repository_and_no_git_give_none(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "a.py"), raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert collect_code(diff_bytes=1000) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert collect_code(diff_bytes=1000) is None


def test_slow_git_is_stopped(project, monkeypatch, tmp_path):
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent))
    started = time.monotonic()
    assert collect_code(diff_bytes=1000, seconds=0.2) is None
    assert time.monotonic() - started < 10


def test_notebook_uses_the_current_folder(project, monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    monkeypatch.chdir(project)
    assert repository.collect_code(diff_bytes=1000)["repository"] == "."
