import pytest

from flightrec.errors import CorruptIncidentError, NewerFormatError
from flightrec.incident import migrate
from flightrec.incident.schema import SCHEMA


def test_every_version_has_a_line_of_history_and_a_way_up():
    assert list(migrate.HISTORY) == list(range(1, migrate.FORMAT + 1))
    assert list(migrate.MIGRATIONS) == list(range(1, migrate.FORMAT))
    assert SCHEMA["properties"]["format"] == {"const": migrate.FORMAT}


def test_a_manifest_of_this_version_stays_as_it_is():
    manifest = {"format": migrate.FORMAT, "kind": "nan"}
    assert migrate.migrate(dict(manifest)) == manifest


STEPS = {
    1: lambda old: {"format": 1, "why": old["cause"], "rank": old["rank"]},
    2: lambda old: {**old, "ranks": [old["rank"]]},
}


def test_an_older_manifest_goes_up_step_by_step():
    old = {"format": 1, "cause": "loss", "rank": 3}
    assert migrate.migrate(old, migrations=STEPS, newest=3) == {
        "format": 3,
        "why": "loss",
        "rank": 3,
        "ranks": [3],
    }


def test_it_starts_at_its_own_version():
    assert migrate.migrate({"format": 2, "rank": 0}, migrations=STEPS, newest=3)["ranks"] == [0]


def test_a_step_that_does_not_find_its_entries_says_so():
    with pytest.raises(CorruptIncidentError, match="not a manifest of format 1: KeyError"):
        migrate.migrate({"format": 1}, migrations=STEPS, newest=3)


def test_a_later_version_names_both_and_the_way_out():
    with pytest.raises(NewerFormatError, match=r"format 9, this build reads up to 1: pip install"):
        migrate.migrate({"format": 9})


@pytest.mark.parametrize("version", [0, -1, "1", None, 1.0, True, [1], "x" * 1000])
def test_what_is_no_version(version):
    with pytest.raises(CorruptIncidentError, match="no such format") as caught:
        migrate.migrate({"format": version})
    assert len(str(caught.value)) < 80
