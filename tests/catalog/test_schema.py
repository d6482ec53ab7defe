"""catalog.sql is read as a whole, and makes the views of an empty store by itself."""

import duckdb
import pyarrow as pa
import pytest

from flightrec.catalog import schema

VIEWS = {
    "environment",
    "findings",
    "incidents",
    "runs",
    "stats",
    "steps",
    "tensors",
    "verdicts",
}


@pytest.fixture
def empty():
    with duckdb.connect() as connection:
        connection.execute(schema.script())
        yield connection


def test_the_views_are_those_of_the_design(empty):
    assert {row[0] for row in empty.execute("SHOW TABLES").fetchall()} == VIEWS


def test_every_view_of_an_empty_store_is_empty_and_typed(empty):
    for view in VIEWS:
        assert empty.execute(f"SELECT * FROM {view}").fetchall() == []
        types = {row[1] for row in empty.execute(f"DESCRIBE {view}").fetchall()}
        assert "NULL" not in types


def test_columns_are_read_as_duckdb_reads_them(empty):
    for table in schema.tables().values():
        described = empty.execute(f"DESCRIBE typed.{table.name}").fetchall()
        assert [(column.name, column.type) for column in table.columns] == [
            (row[0], row[1]) for row in described
        ]


def test_parquet_and_sql_agree_on_types(empty):
    for table in schema.tables().values():
        found = empty.sql(f"SELECT * FROM typed.{table.name}").to_arrow_table().schema
        assert found.names == table.arrow.names
        assert [field.type for field in found] == [field.type for field in table.arrow]


def test_every_column_has_a_meaning(empty):
    for view in VIEWS:
        named = {row[0] for row in empty.execute(f"DESCRIBE {view}").fetchall()}
        if view in schema.tables():
            told = {column.name for column in schema.tables()[view].columns}
        else:
            told = set(schema.derived_views()[view][1])
        assert named <= told


def test_a_line_that_cannot_be_read_is_named(monkeypatch):
    text = "-- t: Rows.\nCREATE TABLE typed.t (\n    a BLOB  -- raw\n);\n"
    monkeypatch.setattr(schema, "script", lambda: text)
    schema.tables.cache_clear()
    with pytest.raises(ValueError, match="this column of t: a BLOB"):
        schema.tables()
    monkeypatch.undo()
    schema.tables.cache_clear()


def test_types_are_known_to_arrow():
    assert schema.tables()["steps"].arrow.field("scalars").type == pa.map_(
        pa.string(), pa.float64()
    )
