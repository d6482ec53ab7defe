"""`flightrec prune`."""

from datetime import timedelta

import pytest

from flightrec.cli.prune import expendable
from flightrec.testing.captures import make_capture


def test_the_newest_are_kept(run, store, incidents):
    found = run("prune", "--keep", 1, "--yes", "--json").json
    assert found["deleted"] == [capture.id for capture in incidents[:2]]
    assert store.ids() == [incidents[2].id]
    assert len(store.rows()) == 1
    assert run("prune", "--keep", 1, "--yes").out.startswith("deleted 0 of 1 incidents")


def test_old_ones_go(run, store, incidents):
    store.put(make_capture(created="2999-01-01T00:00:00+00:00"))
    found = run("prune", "--older-than", "2w", "--yes", "--json").json
    assert found["deleted"] == [capture.id for capture in incidents]


def test_both_limits_must_agree(store, incidents):
    assert [row["id"] for row in expendable(store, 2, timedelta(days=1))] == [incidents[0].id]
    assert expendable(store, 5, timedelta(days=1)) == []
    assert expendable(store, 0, timedelta(days=365_000)) == []


def test_a_dry_run_deletes_nothing(run, store, incidents):
    out = run("prune", "--keep", 0, "--dry-run").out
    assert out.startswith("would delete 3 of 3 incidents (")
    assert len(store.ids()) == 3


def test_it_asks_on_a_terminal_and_refuses_without(run, store, incidents, monkeypatch):
    assert "--yes" in run("prune", "--keep", 0, stdin="y\n").err
    monkeypatch.setattr("flightrec.cli.prune.sys.stdin.isatty", lambda: True, raising=False)
    assert len(store.ids()) == 3


@pytest.mark.parametrize(("answer", "left"), [(True, 1), (False, 3)])
def test_the_answer_counts(answer, left, run, store, incidents, monkeypatch):
    import click

    def confirm(text, *, abort, err):
        assert "delete 2 of 3 incidents" in text
        if not answer:
            raise click.Abort

    monkeypatch.setattr("flightrec.cli.prune.sys.stdin", Terminal())
    monkeypatch.setattr("flightrec.cli.prune.click.confirm", confirm)
    assert run("prune", "--keep", 1).code == (0 if answer else 130)
    assert len(store.ids()) == left


class Terminal:
    """An input that somebody types into."""

    def isatty(self):
        return True


def test_something_must_be_said(run, store):
    assert run("prune", "--yes").code == 2


def test_incidents_without_rows_are_as_old_as_their_file(store, incidents):
    for path in (store.root / "catalog" / "incidents").rglob("*.parquet"):
        path.unlink()
    assert expendable(store, None, timedelta(minutes=5)) == []
    assert len(expendable(store, None, timedelta(seconds=-60))) == 3
