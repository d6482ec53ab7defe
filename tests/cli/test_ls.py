"""`flightrec ls`."""

import csv
import io

import pytest

from flightrec.cli.ls import prefixes
from flightrec.testing.captures import make_capture
from flightrec.testing.store_contract import make_verdict


def test_nothing_to_list_is_fine(run, store):
    found = run("ls")
    assert (found.code, found.err) == (0, "")
    assert found.out == f"no incidents in {store.url}\n"
    assert run("ls", "--json").json == []
    assert run("ls", "--csv").out.count("\n") == 1


def test_the_table_shows_what_matters(run, store, incidents):
    store.add_verdict(make_verdict(incidents[0].id), command="bisect")
    lines = run("ls").out.splitlines()
    assert lines[0].split() == [
        "id", "time", "(UTC)", "kind", "step", "where", "run", "size", "verdict",
    ]  # fmt: skip
    first, second, third = (line.split() for line in lines[2:])
    assert incidents[0].id.startswith(first[0])
    assert first[1:6] == ["03-01", "12:00", "nan", "7", "encoder.0"]
    assert first[-1] == "reproduced"
    assert second[5] == "(root)"
    assert third[3:6] == ["manual", "7", "-"]


def test_the_short_ids_lead_to_their_incidents(run, store, incidents):
    for line, capture in zip(run("ls").out.splitlines()[2:], incidents, strict=True):
        assert run("show", line.split()[0], "--json").json["id"] == capture.id


def test_json_and_csv_have_whole_ids(run, store, incidents):
    expected = [capture.id for capture in incidents]
    assert [row["id"] for row in run("ls", "--json").json] == expected
    rows = list(csv.DictReader(io.StringIO(run("ls", "--csv").out)))
    assert [row["id"] for row in rows] == expected
    assert rows[0]["created"] == "2026-03-01 12:00:00"


def test_kinds_and_numbers_can_be_chosen(run, store, incidents):
    assert [row["kind"] for row in run("ls", "--kind", "zeroed", "--json").json] == ["zeroed"]
    assert [row["kind"] for row in run("ls", "--limit", 2, "--json").json] == ["zeroed", "manual"]
    assert run("ls", "--kind", "inf").out == f"no incidents of kind inf in {store.url}\n"


def test_an_incident_without_rows_is_listed(run, store, incidents):
    for path in (store.root / "catalog" / "incidents").rglob("*.parquet"):
        path.unlink()
    found = run("ls")
    assert len(found.out.splitlines()) == 5
    assert run("ls", "--json").json[0]["kind"] is None


def test_names_of_runs_cannot_break_the_table(run, store):
    for name in ("first\nsecond\t\tthird", "x" * 500):
        capture = make_capture()
        capture.manifest["run"]["name"] = name
        store.put(capture)
    lines = run("ls").out.splitlines()
    assert len(lines) == 4
    assert "first second third" in lines[2]
    assert "x" * 30 in lines[3]
    assert "..." in lines[3]
    assert max(map(len, lines)) < 150


def test_the_width_of_the_terminal_is_honoured(run, store, incidents, monkeypatch):
    monkeypatch.setenv("COLUMNS", "78")
    lines = run("ls").out.splitlines()
    assert max(map(len, lines)) <= 78
    assert len(lines) == 5
    monkeypatch.setenv("COLUMNS", "30")
    assert "verdict" in run("ls").out


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("content", [b"", b"junk" * 50, None], ids=["empty", "junk", "cut"])
def test_files_that_cannot_be_read_are_marked(content, known, run, store, incidents):
    path = store.path(incidents[1].id)
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    if not known:
        for rows in (store.root / "catalog").rglob(f"{incidents[1].id}.parquet"):
            rows.unlink()
    lines = run("ls").out.splitlines()[2:]
    assert ["unreadable: doctor" in line for line in lines] == [False, True, False]


@pytest.mark.parametrize("command", [("ls",), ("query", "SELECT 1")])
def test_one_way_to_print(command, run, store, incidents):
    found = run(*command, "--json", "--csv")
    assert (found.code, "--csv and --json" in found.err) == (2, True)
    assert run(*command, "--table", "--json").code == 2
    assert run(*command, "--json", "--json").code == 0


def test_prefixes_are_short_and_unique():
    assert prefixes([]) == []
    assert prefixes(["0123456789ab"]) == ["01234567"]
    ids = ["0123456789ab-1", "0123456789ab-2", "0123456789cc", "ff"]
    assert prefixes(ids) == ["0123456789ab-1", "0123456789ab-2", "0123456789c", "ff"]
