"""The folder store: what only folders can do wrong; tests/contracts has the rest."""

import os
import stat
import subprocess
import sys

import pytest

from flightrec.errors import CorruptIncidentError, IncidentNotFoundError, StoreError
from flightrec.stores import locate, open_store
from flightrec.stores.local import LocalStore
from flightrec.testing.captures import make_capture
from flightrec.testing.store_contract import make_verdict


@pytest.fixture
def store(tmp_path):
    return LocalStore(str(tmp_path / "incidents [x]"))


def test_opening_makes_nothing(store):
    assert store.ids() == []
    assert store.rows() == []
    assert store.problems() == []
    assert not store.root.exists()


def test_files_lie_by_day_and_only_the_owner_reads_them(store):
    capture = make_capture(created="2026-03-01T23:30:00-05:00")
    path = store.put(capture)
    assert path == store.root / "incidents" / "date=2026-03-02" / f"{capture.id}.h5"
    for written in store.root.rglob("*"):
        if written.is_file():
            assert stat.S_IMODE(written.stat().st_mode) & 0o077 == 0


def test_incidents_are_kept_when_their_rows_cannot_be(store, monkeypatch):
    monkeypatch.delenv("FLIGHTREC_STRICT", raising=False)
    store.prepare()
    (store.root / "catalog").write_text("in the way")
    capture = make_capture()
    assert store.put(capture).exists()
    (store.root / "catalog").unlink()
    assert store.rows()[0]["id"] == capture.id
    assert store.rows()[0]["kind"] is None
    assert store.problems() == [f"incident {capture.id} is missing from the catalog; --fix adds it"]
    assert store.repair() == []
    assert store.rows()[0]["kind"] == "nan"
    assert store.problems() == []


def test_rows_without_a_file_are_reported_and_not_listed(store):
    store.put(make_capture(0))
    gone = make_capture(1)
    store.put(gone).unlink()
    assert gone.id not in [row["id"] for row in store.rows()]
    assert any(gone.id in problem and "file is gone" in problem for problem in store.problems())
    store.repair()
    assert store.problems() == []


def test_a_damaged_incident_is_left_out_by_repair(store):
    kept, broken = make_capture(0), make_capture(1)
    store.put(kept)
    store.put(broken).write_bytes(b"nothing of the kind")
    (line,) = store.repair()
    assert broken.id in line
    assert [row["kind"] for row in store.rows()] == ["nan", None]
    with pytest.raises(CorruptIncidentError):
        store.open(broken.id)


def test_a_damaged_row_file_is_reported_and_mended(store):
    capture = make_capture()
    store.put(capture)
    (path,) = (store.root / "catalog" / "stats").rglob("*.parquet")
    path.write_bytes(b"PAR1")
    assert any("cannot be read" in problem for problem in store.problems())
    assert store.repair() == []
    assert store.problems() == []
    with store.connect() as connection:
        assert connection.execute("SELECT count(*) FROM stats").fetchone() == (3,)


def test_what_others_can_read_is_reported(store):
    path = store.put(make_capture())
    path.chmod(0o644)
    (problem,) = store.problems()
    assert "chmod 600" in problem


def test_leftovers_of_the_dead_are_reported_and_removed(store):
    dead = subprocess.run(
        [
            sys.executable,
            "-c",
            "from flightrec.incident.layout import temporary_name as t; print(t('x'))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    path = store.put(make_capture())
    leftover = path.with_name(dead.stdout.strip())
    leftover.write_bytes(b"half")
    assert store.problems() == []  # it may still be being written
    os.utime(leftover, (1, 1))
    (problem,) = store.problems()
    assert "left by a process that died" in problem
    store.repair()
    assert not leftover.exists()


def test_a_store_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    store = open_store(tmp_path / "file")
    with pytest.raises(StoreError, match="cannot write to the store"):
        store.prepare()
    with pytest.raises(StoreError):
        store.put(make_capture())


def test_verdicts_of_a_store_that_cannot_be_written(store):
    capture = make_capture()
    store.put(capture)
    (store.root / "catalog" / "verdicts").write_text("in the way")
    with pytest.raises(StoreError, match="cannot write to the store"):
        store.add_verdict(make_verdict(capture.id), command="replay")
    assert store.ids() == [capture.id]


def test_two_processes_put_into_one_store(store, tmp_path):
    script = (
        "import sys\n"
        "from flightrec.stores import open_store\n"
        "from flightrec.testing.captures import make_capture\n"
        "store = open_store(sys.argv[1])\n"
        "for number in range(5): store.put(make_capture(number))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(store.root)]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert len(store.ids()) == 10
    assert len(store.rows()) == 10
    assert store.problems() == []


def test_a_path_leads_to_its_store(store, tmp_path):
    path = store.put(make_capture())
    place = locate("elsewhere", str(path))
    assert place.path == path
    assert place.store.ids() == store.ids()
    loose = tmp_path / "copy.h5"
    loose.write_bytes(path.read_bytes())
    place = locate("elsewhere", str(loose))
    assert (place.path, place.store) == (loose, None)
    with pytest.raises(IncidentNotFoundError):
        locate(store.url, str(tmp_path / "none.h5"))


def test_a_name_finds_the_file(store):
    capture = make_capture()
    path = store.put(capture)
    place = locate(store.url, "latest")
    assert (place.path, place.id) == (path, capture.id)
