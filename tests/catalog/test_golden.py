"""The rows of an incident that an older build wrote."""

from pathlib import Path

import pytest

from flightrec.catalog.rows import rows_of
from flightrec.catalog.views import connect_rows
from flightrec.incident.reader import open_incident

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.h5"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_incidents_have_rows(path):
    with open_incident(path) as incident:
        rows = rows_of(incident, path.name)
    with connect_rows(rows) as connection:
        (found,) = connection.execute("SELECT id, kind, step FROM incidents").fetchall()
        tensors = connection.execute("SELECT count(*) FROM tensors").fetchone()
    assert found == (incident.id, incident.manifest["kind"], incident.manifest["step"])
    assert tensors == (len(incident.tensors),)


def test_there_are_golden_incidents():
    assert GOLDEN
