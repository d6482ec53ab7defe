"""What every store must do: subclass `StoreContract` and say how to make one.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(f"mine://{tmp_path}")

It needs pytest. The fixture returns an empty store that nobody else uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flightrec.catalog import compact
from flightrec.errors import IncidentNotFoundError, QueryError, UsageError
from flightrec.testing.captures import make_capture
from flightrec.types import Evidence, SourceLine, Verdict

if TYPE_CHECKING:
    from flightrec.stores import Store

VIEWS = (
    "environment",
    "findings",
    "incidents",
    "runs",
    "stats",
    "steps",
    "tensors",
    "verdicts",
)


def make_verdict(incident_id: str, *, seconds: float = 0.5) -> Verdict:
    """Return a verdict in which every field says something."""
    return Verdict(
        incident_id=incident_id,
        status="reproduced",
        fidelity="bit_exact",
        gradients="none",
        kind="nan",
        step=7,
        noticed_step=7,
        phase="forward",
        module="encoder.0",
        module_type="Linear",
        call=0,
        root_call=0,
        op="aten.sqrt.default",
        source=SourceLine(file="model.py", line=88, code="s = torch.sqrt(v)"),
        sample=17,
        index=(17, 3),
        confirmed=True,
        evidence=(Evidence(kind="rerun", text="it is NaN again", value=float("nan")),),
        forward_passes=2,
        seconds=seconds,
    )


class StoreContract:
    """Tests of one store; each starts with the empty store of the fixture `store`."""

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store; subclasses must replace this."""
        raise NotImplementedError

    def test_an_empty_store_answers(self, store: Store) -> None:
        """Nothing is listed, and every view is there."""
        assert store.ids() == []
        assert store.rows() == []
        with store.connect() as connection:
            for view in VIEWS:
                assert connection.execute(f"SELECT * FROM {view}").fetchall() == []
            shown = connection.execute("SHOW TABLES").fetchall()
        assert [row[0] for row in shown] == list(VIEWS)
        with pytest.raises(IncidentNotFoundError):
            store.resolve("latest")

    def test_what_is_put_can_be_opened(self, store: Store) -> None:
        """The incident is complete as soon as `put` returns."""
        store.prepare()
        captures = [make_capture(number) for number in range(3)]
        for capture in captures:
            path = store.put(capture, b"k" * 32)
            assert path.name == f"{capture.id}.h5"
        assert store.ids() == [capture.id for capture in captures]
        for number, capture in enumerate(captures):
            with store.open(capture.id) as incident:
                assert incident.id == capture.id
                assert incident.tensor(1).tolist() == [[number] * 2] * 2
                assert incident.verify() == []

    def test_rows_are_queried(self, store: Store) -> None:
        """Each view shows what was put."""
        first, second = make_capture(0), make_capture(1, run="run-b", kind="zeroed")
        store.put(first)
        store.put(second)
        assert [row["id"] for row in store.rows()] == [first.id, second.id]
        assert [row["kind"] for row in store.rows()] == ["nan", "zeroed"]
        expected = {
            "incidents": 2,
            "runs": 2,
            "steps": 4,
            "stats": 6,
            "findings": 2,
            "tensors": 4,
            "environment": 6,
            "verdicts": 0,
        }
        with store.connect() as connection:
            for view, count in expected.items():
                found = connection.execute(f"SELECT count(*) FROM {view}").fetchone()
                assert (view, found) == (view, (count,))
            found = connection.execute(
                "SELECT incident_id, nan_count FROM stats WHERE nan_count > 0"
            )
            assert found.fetchall() == [(first.id, 3), (second.id, 3)]

    def test_the_connection_is_locked(self, store: Store) -> None:
        """Only single statements that read are run."""
        store.put(make_capture())
        with store.connect() as connection:
            for statement in (
                "DROP VIEW incidents",
                "FROM read_text('/etc/hostname')",
                "SELECT 1; SELECT 2",
            ):
                with pytest.raises(QueryError):
                    connection.execute(statement)

    def test_an_incident_is_found_by_what_a_user_types(self, store: Store) -> None:
        """An id, a unique beginning, a path and `latest` all lead to it."""
        one = make_capture(0, id="2026-aa-1")
        other = make_capture(1, id="2026-ab-1")
        path = store.put(one)
        store.put(other)
        assert store.resolve("2026-aa-1") == one.id
        assert store.resolve("2026-ab") == other.id
        assert store.resolve("latest") == other.id
        assert store.resolve(str(path)) == one.id
        with pytest.raises(UsageError, match="2026-aa-1, 2026-ab-1"):
            store.resolve("2026-a")
        for text in ("nope", "2026-aa-1-more", "/no/such/2026-aa-1.h5"):
            with pytest.raises(IncidentNotFoundError):
                store.resolve(text)

    def test_deleted_is_gone(self, store: Store) -> None:
        """Also from every view, also after the rows were compacted."""
        if not store.supports_deletes:
            pytest.skip("this kind of store deletes nothing")
        captures = [make_capture(number) for number in range(4)]
        for capture in captures:
            store.put(capture)
        store.add_verdict(make_verdict(captures[0].id), command="replay")
        store.delete(captures[0].id)
        compact(store)
        store.delete_many([captures[1].id, "never-there"])
        left = [capture.id for capture in captures[2:]]
        assert store.ids() == left
        with store.connect() as connection:
            for view in ("stats", "steps", "tensors", "environment", "findings"):
                found = connection.execute(f"SELECT DISTINCT incident_id FROM {view} ORDER BY 1")
                assert [row[0] for row in found.fetchall()] == left
            assert connection.execute("SELECT * FROM verdicts").fetchall() == []
        with pytest.raises(IncidentNotFoundError):
            store.delete(captures[0].id)
        with pytest.raises(IncidentNotFoundError):
            store.open(captures[1].id)

    def test_verdicts_are_kept(self, store: Store) -> None:
        """One row per replay; `rows` shows the newest."""
        capture = make_capture()
        store.put(capture)
        assert store.rows()[0]["status"] is None
        store.add_verdict(make_verdict(capture.id, seconds=1.0), command="replay")
        store.add_verdict(make_verdict(capture.id, seconds=2.0), command="bisect", device="cuda:0")
        with store.connect() as connection:
            found = connection.execute(
                "SELECT command, device, status, module, file, line, sample, index, confirmed,"
                " seconds, date, run FROM verdicts ORDER BY judged"
            ).fetchall()
            assert connection.execute("SELECT evidence FROM verdicts LIMIT 1").fetchone() == (
                '[{"kind": "rerun", "text": "it is NaN again", "value": "nan"}]',
            )
        assert [row[0] for row in found] == ["replay", "bisect"]
        assert found[1][1:10] == (
            "cuda:0",
            "reproduced",
            "encoder.0",
            "model.py",
            88,
            17,
            [17, 3],
            True,
            2.0,
        )
        assert (str(found[0][10]), found[0][11]) == ("2026-03-01", "run-a")
        row = store.rows()[0]
        assert (row["status"], row["culprit"], row["op"]) == (
            "reproduced",
            "encoder.0",
            "aten.sqrt.default",
        )

    def test_compact_and_repair_change_no_row(self, store: Store) -> None:
        """Whatever happens to the files behind the views, the rows are the same."""
        captures = [make_capture(number, run=f"run-{number % 2}") for number in range(5)]
        for capture in captures:
            store.put(capture)
        store.add_verdict(make_verdict(captures[1].id), command="replay")
        before = _everything(store)
        compact(store)
        assert _everything(store) == before
        assert store.repair() == []
        assert _everything(store) == before
        assert store.problems() == []


def _everything(store: Store) -> dict[str, list[str]]:
    with store.connect() as connection:
        return {
            view: sorted(str(row) for row in connection.execute(f"SELECT * FROM {view}").fetchall())
            for view in VIEWS
        }
