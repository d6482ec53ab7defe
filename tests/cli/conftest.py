"""The command line called in this process, and a store for it."""

import json
from dataclasses import dataclass

import pytest

from flightrec.cli import main
from flightrec.stores import open_store
from flightrec.testing.captures import make_capture


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(capsys, monkeypatch):
    """Call a command; its store is $FLIGHTREC_STORE, set by the fixture `store`."""

    def called(*arguments, stdin=None):
        if stdin is not None:
            import io

            monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        if left.value.code not in (0, 1):
            assert out == ""
            assert err.count("\n") == 1
            assert err.startswith("flightrec: ")
        return Outcome(left.value.code, out, err)

    return called


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty store that commands use without being told."""
    monkeypatch.setenv("FLIGHTREC_STORE", str(tmp_path / "store"))
    store = open_store(tmp_path / "store")
    store.prepare()
    return store


@pytest.fixture
def incidents(store):
    """Three incidents of three kinds; returns their captures, oldest first."""
    captures = [
        make_capture(0),
        make_capture(1, kind="zeroed", run="run-b", site=":output:['x']#2"),
        make_capture(2, kind="manual", site=None, detector=None, findings=[]),
    ]
    for capture in captures:
        store.put(capture)
    return captures
