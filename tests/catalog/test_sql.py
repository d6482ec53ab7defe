"""Which statements may run, tried with what people and attackers type."""

import duckdb
import pytest

from flightrec.catalog.sql import check
from flightrec.errors import QueryError

READS = [
    "SELECT 1",
    "select 1;",
    "/* why */ SELECT 'a;b' -- c;",
    "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) FROM t",
    "FROM incidents",
    "TABLE incidents",
    "VALUES (1), (2)",
    "SELECT 1 UNION ALL SELECT 2",
    "(SELECT 1)",
    "DESCRIBE incidents",
    "DESC incidents",
    "DESCRIBE SELECT 1",
    "SUMMARIZE stats",
    "SHOW TABLES",
    "SHOW incidents",
    "EXPLAIN SELECT 1",
    "/* a */ EXPLAIN -- b\n WITH a AS (SELECT 1) FROM a",
    "SELECT * FROM range(3), generate_series(1, 2), unnest([1, 2])",
    "SELECT module, count(*) FILTER (nan_count > 0) FROM stats GROUP BY ALL",
    "SELECT * FROM incidents WHERE id IN (SELECT incident_id FROM findings)",
    "UNPIVOT stats ON min, max INTO NAME n VALUE v",
    "SELECT * FROM duckdb_columns()",
]

REFUSED = [
    "",
    ";",
    "-- nothing",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY incidents TO 'x.csv'",
    "COPY (SELECT 1) TO 'x.csv'",
    "COPY incidents FROM 'x.csv'",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN ANALYSE SELECT 1",
    "EXPLAIN (ANALYZE) SELECT 1",
    "EXPLAIN (ANALYZE, FORMAT json) SELECT 1",
    "EXPLAIN /* */ ANALYZE -- x\n COPY (SELECT 1) TO 'x'",
    "EXPLAIN COPY (SELECT 1) TO 'x'",
    "EXPLAIN INSERT INTO incidents VALUES (1)",
    "EXPLAIN",
    "WITH a AS (COPY (SELECT 1) TO 'x.csv') SELECT * FROM a",
    "WITH a AS (INSERT INTO incidents VALUES (1) RETURNING *) SELECT * FROM a",
    "WITH a AS (SELECT 1), b AS (DELETE FROM incidents RETURNING *) FROM a",
    "EXPLAIN WITH a AS (COPY (SELECT 1) TO 'x') FROM a",
    "DESCRIBE WITH a AS (COPY (SELECT 1) TO 'x') FROM a",
    "SUMMARIZE WITH a AS (COPY (SELECT 1) TO 'x') FROM a",
    "SELECT (WITH a AS (UPDATE incidents SET id = 1 RETURNING id) SELECT id FROM a)",
    "WITH a AS (SELECT 1) INSERT INTO incidents FROM a",
    "ATTACH 'x.db'",
    "DETACH x",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "SET threads = 1",
    "RESET threads",
    "USE typed",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE TABLE x (a INT)",
    "CREATE OR REPLACE VIEW incidents AS SELECT 1",
    "CREATE TEMP MACRO f(a) AS a",
    "DROP VIEW incidents",
    "ALTER VIEW incidents RENAME TO x",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "BEGIN",
    "VACUUM",
    "CHECKPOINT",
    "EXPORT DATABASE 'x'",
    "IMPORT DATABASE 'x'",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('incidents')",
    "FROM json_execute_serialized_sql('{}')",
    "FROM glob('*')",
    "FROM read_text('/etc/passwd')",
    "FROM read_blob('x')",
    "FROM read_csv('x')",
    "FROM READ_CSV_AUTO('x')",
    "FROM sniff_csv('x')",
    "FROM (SELECT * FROM read_json('x'))",
    "SELECT * FROM incidents WHERE id IN (SELECT content FROM read_text('x'))",
    "FROM enable_logging()",
    "FROM enable_profiling()",
    "SELEC 1",
]


@pytest.fixture
def parser():
    with duckdb.connect() as connection:
        yield connection


@pytest.mark.parametrize("statement", READS)
def test_reading_is_allowed(statement, parser):
    check(statement, parser)


@pytest.mark.parametrize("statement", REFUSED)
def test_everything_else_is_refused_in_one_line(statement, parser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError) as refused:
        check(statement, parser)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_deeply_nested_statement_is_refused(parser):
    with pytest.raises(QueryError, match=r"depth|nested"):
        check("SELECT " + " + ".join(["1"] * 900), parser)


def test_the_refusal_says_what_is_allowed(parser):
    with pytest.raises(QueryError, match="one SELECT, WITH, DESCRIBE, SHOW, or EXPLAIN"):
        check("DROP VIEW incidents", parser)
