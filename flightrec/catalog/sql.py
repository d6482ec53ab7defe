"""Which SQL text may run on a catalog: exactly one statement, and one that only reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import duckdb

from flightrec.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Iterator

READING_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
"""Kinds of query in a syntax tree that only read. DuckDB 2 also takes INSERT, UPDATE, DELETE
and COPY inside WITH and still calls the whole statement a SELECT."""

TABLE_FUNCTIONS = frozenset(
    {
        "duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_schemas",
        "duckdb_settings", "duckdb_tables", "duckdb_types", "duckdb_views",
        "generate_series", "json_each", "json_tree", "parquet_file_metadata",
        "parquet_kv_metadata", "parquet_metadata", "parquet_scan", "parquet_schema",
        "pragma_table_info", "pragma_version", "range", "read_parquet", "repeat", "unnest",
    }
)  # fmt: skip
"""Functions allowed after FROM: others turn on logs and profiles, or run SQL held in text."""

ALLOWED = "one SELECT, WITH, DESCRIBE, SHOW, or EXPLAIN of a SELECT"


def check(statement: str, parser: duckdb.DuckDBPyConnection) -> None:
    """Raise `QueryError` unless `statement` is one that only reads.

    `parser` is any open connection; nothing of `statement` is executed on it.
    """
    try:
        found = parser.extract_statements(statement)
    except duckdb.Error as fault:
        raise QueryError(one_line(fault)) from fault
    if len(found) != 1:
        many = "no statement" if not found else f"{len(found)} statements"
        raise QueryError(f"a query is {ALLOWED}; this has {many}")
    text = found[0].query
    if found[0].type == duckdb.StatementType.EXPLAIN:
        text = _explained(text, parser)
    elif found[0].type != duckdb.StatementType.SELECT:
        raise QueryError(f"a query is {ALLOWED}; this is {found[0].type.name}")
    _check_tree(_syntax_tree(text, parser))


def _explained(text: str, parser: duckdb.DuckDBPyConnection) -> str:
    """Return what an EXPLAIN explains; ANALYZE would run it, so it is refused."""
    tokens = [at for at, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    inner = text[tokens[1] :] if len(tokens) > 1 else ""
    plain = f"EXPLAIN takes a SELECT and neither ANALYZE nor options; a query is {ALLOWED}"
    if not inner or inner.startswith("("):
        raise QueryError(plain)
    try:
        kinds = [found.type for found in parser.extract_statements(inner)]
    except duckdb.Error as fault:
        raise QueryError(plain) from fault
    if kinds != [duckdb.StatementType.SELECT]:
        raise QueryError(plain)
    return inner


def _syntax_tree(text: str, parser: duckdb.DuckDBPyConnection) -> Any:
    row = parser.cursor().execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    try:
        tree = json.loads(row[0]) if row else {"error": True, "error_message": "no syntax tree"}
    except RecursionError as fault:
        raise QueryError("this statement is nested too deeply; take it apart") from fault
    if tree["error"]:
        raise QueryError(f"a query is {ALLOWED}; DuckDB says: {tree['error_message']}")
    return tree


def _check_tree(tree: Any) -> None:
    for node in _objects(tree):
        kind = node.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in READING_NODES:
            raise QueryError(f"a query only reads; this holds {kind.split('_')[0]} inside WITH")
        if kind == "TABLE_FUNCTION":
            function = node["function"]
            name = str(function.get("function_name", "")).lower()
            if name not in TABLE_FUNCTIONS:
                raise QueryError(
                    f"a query may not read from {name}(); it reads the views, and functions"
                    " such as unnest, range, json_each, read_parquet and duckdb_columns"
                )


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object inside, without recursion."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def one_line(fault: Exception) -> str:
    """Return DuckDB's message without the excerpt of the statement below it."""
    head = str(fault).partition("\nLINE ")[0]
    return " ".join(head.split())
