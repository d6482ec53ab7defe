"""The locked connection: what it shows, what it refuses, what it does about damaged files."""

import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flightrec.catalog.files import CatalogFiles
from flightrec.catalog.rows import rows_of
from flightrec.catalog.schema import tables
from flightrec.catalog.views import connect_files, connect_rows
from flightrec.errors import QueryError


@pytest.fixture
def files(tmp_path, make):
    files = CatalogFiles(tmp_path / "sto're [1]*?" / "catalog")
    for id, run in (("a", "run-1"), ("b", "run-1"), ("c", "run-2")):
        files.write(rows_of(make(id, run=run), f"{id}.h5"), id)
    return files


@pytest.fixture
def connection(files):
    with connect_files(files) as connection:
        yield connection


def values(connection, query):
    return connection.execute(query).fetchall()


def test_the_views_show_the_rows(connection):
    assert values(connection, "SELECT id, kind FROM incidents ORDER BY id") == [
        ("a", "nan"),
        ("b", "nan"),
        ("c", "nan"),
    ]
    assert values(connection, "SELECT count(*) FROM stats WHERE nan_count > 0") == [(3,)]
    assert values(connection, "SELECT run, name, pid, incidents, kinds FROM runs ORDER BY 1") == [
        ("run-1", "night", 4, 2, ["nan"]),
        ("run-2", "night", 4, 1, ["nan"]),
    ]
    assert values(connection, "SELECT scalars['accuracy'] FROM steps LIMIT 0") == []
    assert connection.description[0][0].startswith("scalars")


def test_nothing_measured_is_not_large(connection):
    assert values(connection, "SELECT count(*) FROM stats WHERE max > 1e30") == [(0,)]


def test_parameters_are_values(connection):
    assert connection.execute("SELECT id FROM incidents WHERE id = ?", ["b"]).fetchone() == ("b",)


def test_a_relation_can_be_had(connection):
    assert connection.sql("SELECT count(*) AS n FROM incidents").to_arrow_table().to_pylist() == [
        {"n": 3}
    ]


def test_a_second_connection_sees_the_same(connection):
    assert connection.cursor().execute("SELECT count(*) FROM incidents").fetchone() == (3,)
    with pytest.raises(QueryError):
        connection.cursor().execute("SET threads = 1")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM incidents WHERE nope = 1",
        "SELECT * FROM nowhere",
        "SELECT 1 +",
        "SELECT 'x'::INT",
        "SELECT error('boom')",
        "FROM '/etc/passwd'",
        "FROM '../../secret.parquet'",
        "FROM read_parquet('/tmp/*.parquet')",
        "COPY incidents TO 'here.csv'",
    ],
)
def test_wrong_sql_is_one_line(connection, statement):
    with pytest.raises(QueryError) as refused:
        connection.execute(statement).fetchall()
    assert "\n" not in str(refused.value)


def test_nothing_beside_the_catalog_can_be_read(connection, files, tmp_path):
    for folder in (tmp_path, files.folder.parent, files.folder.parent / "incidents"):
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"secret": [1]}), folder / "x.parquet")
        path = str(folder / "x.parquet").replace("'", "''")
        for source in (f"'{path}'", f"read_parquet('{path}')", f"parquet_schema('{path}')"):
            with pytest.raises(QueryError):
                connection.execute(f"FROM {source}").fetchall()


def test_python_values_cannot_be_read(connection):
    secret = pa.table({"secret": [1]})
    assert secret.num_rows == 1
    with pytest.raises(QueryError, match="secret"):
        connection.execute("SELECT * FROM secret")


def test_methods_that_change_something_are_not_offered(connection):
    for name in ("register", "create_function", "executemany", "load_extension", "append"):
        with pytest.raises(AttributeError, match="a catalog connection has"):
            getattr(connection, name)


def test_settings_are_locked(connection):
    settings = dict(values(connection, "SELECT name, value FROM duckdb_settings()"))
    assert settings["lock_configuration"] == "true"
    assert settings["enable_external_access"] == "false"
    assert settings["temp_directory"] == ""


def test_an_unreadable_file_is_skipped_and_named(files, caplog):
    broken = files.listing("incidents")[1]
    broken.write_bytes(b"not parquet")
    with caplog.at_level(logging.WARNING, "flightrec"), connect_files(files) as connection:
        assert values(connection, "SELECT id FROM incidents ORDER BY id") == [("a",), ("c",)]
    assert [record.getMessage() for record in caplog.records] == [
        f"skipped {broken}, which cannot be read; `flightrec doctor --fix` makes it anew"
    ]


def test_a_file_damaged_after_opening_is_skipped(files, connection, caplog):
    files.listing("steps")[0].write_bytes(b"PAR1")
    with caplog.at_level(logging.WARNING, "flightrec"):
        assert values(connection, "SELECT DISTINCT incident_id FROM steps ORDER BY 1") == [
            ("b",),
            ("c",),
        ]
    assert "skipped" in caplog.text


def test_files_folded_away_after_opening_are_found_again(files, connection):
    files.compact()
    assert values(connection, "SELECT count(*) FROM incidents") == [(3,)]
    files.drop({"a"})
    assert values(connection, "SELECT count(*) FROM incidents") == [(2,)]


def test_an_empty_store_has_empty_views(tmp_path):
    with connect_files(CatalogFiles(tmp_path / "catalog")) as connection:
        for name in (*tables(), "runs"):
            assert values(connection, f"SELECT * FROM {name}") == []
            assert connection.description
    assert not (tmp_path / "catalog").exists()


def test_columns_of_other_versions(files, connection):
    path = files.listing("incidents")[0]
    table = pq.read_table(path).drop_columns(["machine"])
    pq.write_table(table.append_column("later", pa.array([1])), path)
    with connect_files(files) as connection:
        assert ("a", None) in values(connection, "SELECT id, machine FROM incidents")
        with pytest.raises(QueryError, match="later"):
            connection.execute("SELECT later FROM incidents")


def test_rows_in_memory(make):
    with connect_rows(rows_of(make("a"), "a.h5")) as connection:
        assert values(connection, "SELECT id FROM incidents") == [("a",)]
        assert values(connection, "SELECT count(*) FROM stats") == [(3,)]
        with pytest.raises(QueryError):
            connection.execute("FROM '/etc/passwd'")
