"""The columns of the catalog, read from schemas/catalog.sql, which alone defines them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

ARROW_TYPES: dict[str, pa.DataType] = {
    "VARCHAR": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "BIGINT[]": pa.list_(pa.int64()),
    "MAP(VARCHAR, DOUBLE)": pa.map_(pa.string(), pa.float64()),
}
"""Type in catalog.sql -> type in Parquet."""

_LINES = re.MULTILINE | re.DOTALL
_TABLE = re.compile(r"^-- (\w+): ([^\n]+)\nCREATE TABLE typed\.(\w+) \(\n(.*?)\n\);", _LINES)
_COLUMN = re.compile(r"^ {4}(\w+) ([A-Z]+(?:\[\]|\(.+?\))?),? +-- (.+)$")
_VIEW = re.compile(r"^-- (\w+): ([^\n]+)\nCREATE VIEW (\w+) AS SELECT\n(.*?)\nFROM", _LINES)
_VIEW_COLUMN = re.compile(r"(\w+),? +-- (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its name, its type in SQL and what it means."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One kind of row that a store writes."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def arrow(self) -> pa.Schema:
        """Return the Parquet schema, columns in the order of catalog.sql."""
        return pa.schema([(column.name, ARROW_TYPES[column.type]) for column in self.columns])


def script() -> str:
    """Return the text of schemas/catalog.sql."""
    return resources.files("schemas").joinpath("catalog.sql").read_text(encoding="utf-8")


@cache
def tables() -> dict[str, Table]:
    """Return every table of rows by name, in the order of catalog.sql."""
    found: dict[str, Table] = {}
    for heading, meaning, name, body in _TABLE.findall(script()):
        if heading != name:
            raise ValueError(f"catalog.sql: the comment above {name} is about {heading}")
        found[name] = Table(name=name, meaning=meaning, columns=tuple(_columns(name, body)))
    return found


def _columns(table: str, body: str) -> list[Column]:
    columns = []
    for line in body.splitlines():
        match = _COLUMN.match(line)
        if match is None or match[2] not in ARROW_TYPES:
            raise ValueError(f"catalog.sql: cannot read this column of {table}: {line.strip()}")
        columns.append(Column(name=match[1], type=match[2], meaning=match[3]))
    return columns


@cache
def derived_views() -> dict[str, tuple[str, dict[str, str]]]:
    """Return the views computed from others: name -> (meaning, column -> meaning)."""
    return {
        name: (meaning, dict(_VIEW_COLUMN.findall(body)))
        for heading, meaning, name, body in _VIEW.findall(script())
        if heading == name
    }
