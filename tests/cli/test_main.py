"""One line per failure, the right exit code, and a good neighbour in pipes."""

import os
import subprocess
import sys

import click
import pytest

from flightrec import cli, errors
from flightrec.cli import main
from flightrec.stores import open_store
from flightrec.testing.captures import make_capture

PROGRAM = [sys.executable, "-m", "flightrec"]


def test_help_lists_every_command(run):
    found = run("--help")
    assert found.code == 0
    for name in ("ls", "show", "query", "replay", "bisect", "export", "prune", "doctor"):
        assert f"\n  {name} " in found.out
    assert run("-h").out == found.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lss"], "No such command 'lss'"),
        (["ls", "--nope"], "--nope"),
        (["ls", "--limit", "0"], "--limit"),
        (["export"], "--to"),
        (["show", "one", "two"], "two"),
        (["bisect", "--code", "nope"], "recorded"),
        (["query", "SELEC 1"], "SELEC"),
        (["query", ""], "no statement"),
        (["prune", "--older-than", "soon"], "30d"),
        (["ls", "--store", "nowhere://x"], "local, memory"),
    ],
)
def test_wrong_usage_exits_with_2(arguments, words, run, store):
    found = run(*arguments)
    assert found.code == 2
    assert words in found.err


def test_a_missing_store_exits_with_4(run, tmp_path):
    for command in ("ls", "show", "prune"):
        extra = ["--keep", "1"] if command == "prune" else []
        found = run(command, "--store", tmp_path / "none", *extra)
        assert found.code == 4
        assert "--store" in found.err


def test_an_incident_that_is_not_there_exits_with_3(run, store):
    for command in (["show"], ["export", "--to", "x"], ["show", "nope"], ["show", "./nope.h5"]):
        assert run(*command).code == 3


def every_error(base=errors.FlightrecError):
    return [base, *(found for sub in base.__subclasses__() for found in every_error(sub))]


class Failing:
    """Stands for the command `ls`, and raises."""

    def __init__(self, fault):
        self.fault = fault

    def __call__(self, kind):
        assert kind == "cli"
        return self

    def names(self):
        return ("ls",)

    def load(self, name):
        @click.command(name)
        def command():
            raise self.fault

        return command


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.__name__)
def test_each_error_has_its_exit_code(error, run, monkeypatch):
    monkeypatch.setattr(cli, "Registry", Failing(error("what went\nwrong")))
    with pytest.raises(SystemExit) as left:
        main(["ls"])
    assert left.value.code == error.exit_code


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (KeyboardInterrupt(), 130),
        (PermissionError(13, "Permission denied", "x"), 4),
        (OSError(28, "No space left on device"), 4),
        (RuntimeError("\x1b[31mbroken"), 4),
    ],
)
def test_other_faults_are_one_line_too(fault, code, run, monkeypatch):
    monkeypatch.delenv("FLIGHTREC_STRICT", raising=False)
    monkeypatch.setattr(cli, "Registry", Failing(fault))
    assert run("ls").code == code


def test_a_fault_of_ours_is_raised_in_tests(monkeypatch):
    monkeypatch.setenv("FLIGHTREC_STRICT", "1")
    monkeypatch.setattr(cli, "Registry", Failing(RuntimeError("broken")))
    with pytest.raises(RuntimeError, match="broken"):
        main(["ls"])


def test_a_reader_that_goes_away_is_no_failure(tmp_path):
    store = open_store(tmp_path)
    store.put(make_capture())
    query = "SELECT repeat('x', 1000) FROM range(2000)"
    with subprocess.Popen(
        [*PROGRAM, "query", "--csv", "--store", str(tmp_path), query],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


INTERRUPTED = """
import os, signal, sys
from flightrec.cli import main

class Typing:
    def isatty(self):
        return False

    def read(self):
        os.kill(os.getpid(), signal.SIGINT)
        return "SELECT 1"

sys.stdin = Typing()
main(["query"])
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
def test_an_interruption_exits_with_130(store):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "flightrec: interrupted\n")


LONG = """
import os, signal, threading
from flightrec.cli import main

def interrupt():
    while not any(each.name.startswith("flightrec-query") for each in threading.enumerate()):
        pass
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
tables = "range(9999999) a, range(9999999) b"
main(["query", f"SELECT count(*) FROM {tables} WHERE a.range % 7 < b.range"])
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
def test_a_long_query_can_be_interrupted(store):
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "flightrec: interrupted\n")


def test_text_for_a_terminal_that_knows_only_ascii(tmp_path):
    open_store(tmp_path).put(make_capture(reason="größer als 数"))
    done = subprocess.run(
        [*PROGRAM, "show", "--store", str(tmp_path)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert b"gr\\xf6\\xdfer als \\u6570" in done.stdout


def test_a_damaged_catalog_file_is_named_on_stderr(run, store, incidents):
    broken = next((store.root / "catalog" / "incidents").rglob("*.parquet"))
    broken.write_bytes(b"x")
    found = run("ls", "--json")
    assert found.code == 0
    assert len(found.json) == 3
    assert found.err.count("\n") == 1
    assert str(broken) in found.err


def test_listing_needs_no_torch(store, incidents):
    script = (
        "import sys\n"
        "from flightrec.cli import main\n"
        "try: main(['ls'])\n"
        "except SystemExit as left: assert left.code == 0\n"
        "assert 'torch' not in sys.modules and 'h5py' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_none_of_the_heavy_ones():
    script = (
        "import sys, flightrec\n"
        "heavy = {'duckdb', 'pyarrow', 'h5py', 'torch', 'click', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "flightrec.open_store\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
