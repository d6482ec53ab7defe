"""`flightrec query`."""

import pytest

from flightrec.cli.query import unique


def test_a_statement_as_argument(run, store, incidents):
    found = run("query", "SELECT kind FROM incidents ORDER BY id", "--json")
    assert found.json == [{"kind": "nan"}, {"kind": "zeroed"}, {"kind": "manual"}]


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_a_statement_from_standard_input(arguments, run, store, incidents):
    found = run("query", *arguments, "--csv", stdin="SELECT count(*) AS n FROM steps\n;")
    assert found.out == "n\n6\n"


def test_a_table_is_the_default(run, store, incidents):
    out = run("query", "SELECT 1 AS one, NULL AS nothing").out
    assert [line.split() for line in out.splitlines()[::2]] == [["one", "nothing"], ["1", "-"]]


def test_no_rows_is_fine(run, store):
    assert run("query", "FROM incidents", "--json").json == []
    assert run("query", "FROM incidents", "--csv").out.startswith("id,created,kind")
    assert run("query", "FROM incidents").code == 0


def test_values_of_every_type(run, store, incidents):
    statement = (
        "SELECT 'nan'::DOUBLE a, NULL b, [1, 2] c, {'k': true} d, MAP {'m': 1.5} e,"
        " DATE '2026-03-01' f, 2::DECIMAL(4,1) g, 'x'::BLOB h, INTERVAL 1 DAY i"
    )
    (row,) = run("query", statement, "--json").json
    assert (row["a"], row["b"], row["c"], row["d"]) == ("nan", None, [1, 2], {"k": True})
    assert (row["e"], row["f"], row["g"]) == ({"m": 1.5}, "2026-03-01", 2.0)
    assert run("query", statement).code == 0
    assert run("query", statement, "--csv").code == 0


def test_columns_of_one_name_are_told_apart(run, store, incidents):
    found = run("query", "SELECT 1 AS a, 2 AS a, 3 AS a_2", "--json").json
    assert found == [{"a": 1, "a_2": 2, "a_2_2": 3}]
    assert unique(["a", "a", "a"]) == ["a", "a_2", "a_3"]


@pytest.mark.parametrize(
    "statement",
    [
        "COPY incidents TO 'out.csv'",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT 1; SELECT 2",
        "EXPLAIN ANALYZE SELECT 1",
        "SELECT nope FROM incidents",
        "SELECT error('boom')",
    ],
)
def test_bad_sql_is_one_line_and_exits_with_2(statement, run, store, incidents):
    assert run("query", statement).code == 2


def test_text_of_an_incident_cannot_play_tricks(run, store):
    from flightrec.testing.captures import make_capture

    store.put(make_capture(reason="\x1b[2Jgone\u202e"))
    for style in ("--table", "--csv", "--json"):
        out = run("query", "SELECT reason FROM incidents", style).out
        assert "\x1b" not in out
        assert "\u202e" not in out


def test_many_rows_are_printed_as_they_come(run, store):
    statement = "SELECT range AS n FROM range(25000) ORDER BY n"
    assert [row["n"] for row in run("query", statement, "--json").json] == list(range(25000))
    assert run("query", statement, "--csv").out.splitlines()[-1] == "24999"
