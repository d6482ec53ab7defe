"""One incident as rows: numbers, sites, times and what is missing."""

from datetime import date, datetime

from flightrec.catalog.rows import flatten, number, rows_of
from flightrec.types import Stat


def rows(make, table, **changes):
    return rows_of(make("a", **changes), "incidents/a.h5")[table].to_pylist()


def test_an_incident_is_one_row(make):
    (row,) = rows(make, "incidents")
    assert row["id"] == "a"
    assert row["created"] == datetime(2026, 3, 1, 12)
    assert row["date"] == date(2026, 3, 1)
    assert (row["module"], row["site_kind"], row["leaf"], row["call"]) == (
        "encoder.0",
        "output",
        "['x']",
        1,
    )
    assert row["bytes"] == 5
    assert row["path"] == "incidents/a.h5"
    assert row["loss"] != row["loss"]
    assert row["grad_norm"] is None
    assert (row["machine"], row["device"], row["torch"]) == ("node-3", "cpu", "2.13.0")
    assert (row["commit"], row["dirty"]) == ("abc123", True)
    assert row["run_argv"] == "train.py --lr 1"


def test_what_was_not_recorded_is_null(make):
    (row,) = rows(make, "incidents", site=None, detector=None, code=None, steps=[])
    for name in ("site", "module", "site_kind", "call", "detector", "commit", "dirty", "loss"):
        assert row[name] is None


def test_an_exception_is_kept_as_text(make):
    raised = {
        "step": 7,
        "exception": {"type": "IndexError", "message": "out of range", "traceback": []},
    }
    (row,) = rows(make, "incidents", segment=raised)
    assert (row["exception_type"], row["exception_message"]) == ("IndexError", "out of range")


def test_times_are_utc(make):
    (row,) = rows(make, "incidents", created="2026-03-01T23:30:00-05:00")
    assert row["created"] == datetime(2026, 3, 2, 4, 30)
    assert row["date"] == date(2026, 3, 2)


def test_steps_keep_nan_apart_from_missing(make):
    first, last = rows(make, "steps")
    assert (first["step"], first["loss"], first["forward_seconds"]) == (6, 0.5, None)
    assert last["loss"] != last["loss"]
    assert last["grad_norm"] is None
    assert last["forward_seconds"] == 0.1
    assert dict(last["scalars"])["accuracy"] == 0.25


def test_stats_has_a_row_where_something_was_measured(make):
    found = rows(make, "stats")
    assert [(row["step"], row["ordinal"]) for row in found] == [(6, 0), (7, 0), (7, 1)]
    assert found[0]["zero_fraction"] == 0.5
    assert found[0]["numel"] == 6
    assert found[1]["nan_count"] == 3
    assert found[1]["max"] is None
    assert found[2]["absmax"] == float("inf")
    assert found[2]["nan_count"] is None
    assert found[2]["site"] == ":param_grad:weight#0"


def test_stats_of_an_older_build_have_fewer_columns(make):
    incident = make("a")
    incident.stats_TSK = incident.stats_TSK[:, :, : Stat.STD]
    row = rows_of(incident, "a.h5")["stats"].to_pylist()[0]
    assert row["mean"] == 0
    assert row["std"] is None


def test_no_stats_no_rows(make):
    incident = make("a")
    incident.sites, incident.stats_TSK = (), incident.stats_TSK[:0, :0]
    assert "stats" not in rows_of(incident, "a.h5")


def test_findings_keep_their_order(make):
    first, second = rows(make, "findings")
    assert (first["ordinal"], first["value"], first["threshold"]) == (0, 3.0, 1.0)
    assert second["module"] is None
    assert second["value"] != second["value"]


def test_tensors_have_bytes_and_a_hash(make):
    weight, empty = rows(make, "tensors")
    assert (weight["name"], weight["shape"], weight["bytes"], weight["hash"]) == (
        "weight",
        [2, 3],
        24,
        "cafe",
    )
    assert (empty["bytes"], empty["hash"]) == (0, None)
    assert (weight["step"], empty["step"]) == (None, 7)


def test_environment_is_flat(make):
    found = {row["key"]: row["value"] for row in rows(make, "environment")}
    assert found["packages.numpy"] == "2.4.6"
    assert found["flags.deterministic"] == "false"
    assert found["missing"] is None
    assert found["devices"] == "[]"


def test_text_that_parquet_cannot_hold_is_replaced(make):
    (row,) = rows(make, "incidents", reason="half \ud800 pair")
    assert row["reason"] == "half ? pair"


def test_numbers_are_read_from_their_tags():
    assert number({"$": "float", "v": "-inf"}) == float("-inf")
    assert number(3) == 3.0
    assert number(None) is None


def test_flatten_stops_at_tagged_values():
    assert dict(flatten({"a": {"b": {"$": "float", "v": "nan"}}})) == {
        "a.b": {"$": "float", "v": "nan"}
    }


def test_lists_of_devices_are_numbered(make):
    environment = {"devices": [{"type": "cuda", "name": "A100"}], "machine": 3}
    (row,) = rows(make, "incidents", environment=environment)
    assert (row["device"], row["machine"], row["torch"]) == ("A100", "3", None)
    found = {row["key"]: row["value"] for row in rows(make, "environment", environment=environment)}
    assert found == {"devices.0.type": "cuda", "devices.0.name": "A100", "machine": "3"}
