"""The connection on which a catalog is queried: views over the rows, and no way out."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self

import duckdb

from flightrec.catalog.files import CatalogFiles, damaged
from flightrec.catalog.schema import script, tables
from flightrec.catalog.sql import check, one_line
from flightrec.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

log = logging.getLogger("flightrec")

RESULTS = frozenset(
    {"arrow", "df", "fetch_arrow_table", "fetchall", "fetchdf", "fetchmany", "fetchnumpy"}
    | {"fetchone", "to_arrow_table"}
)
"""Methods of a DuckDB connection that only hand out the newest result."""

NOT_OF_THE_FILES = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.PermissionException,
    duckdb.ConversionException,
    duckdb.OutOfMemoryException,
)
"""Errors that reading other files would not cure."""


class LockedConnection:
    """A DuckDB connection that sees the views of one store and runs single reading statements.

    `execute`, `sql`, the `fetch...` methods, `description` and `close` are DuckDB's. All of
    them raise `QueryError` with one line for SQL that is wrong or not allowed.
    """

    def __init__(self, raw: duckdb.DuckDBPyConnection, refresh: Callable[[], bool]) -> None:
        """Wrap `raw`, locked already; `refresh()` looks at the files again: have they changed?"""
        self._raw = raw
        self._refresh = refresh

    def execute(self, query: str, parameters: object = None) -> Self:
        """Run one statement, values for its `?` or `$name` in `parameters`."""
        check(query, self._raw)
        self._again(lambda: self._raw.execute(query, parameters))
        return self

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Return one statement as a relation, which computes when it is looked at."""
        check(query, self._raw)
        relation: duckdb.DuckDBPyRelation = self._again(lambda: self._raw.sql(query))
        return relation

    query = sql

    @property
    def description(self) -> list[Any]:
        """Name and type of each column of the newest result."""
        return list(self._raw.description or [])

    def cursor(self) -> LockedConnection:
        """Return a second connection to the same views, for use beside this one."""
        return LockedConnection(self._raw.cursor(), self._refresh)

    def close(self) -> None:
        """Close it; nothing was changed by it, so nothing is lost."""
        self._raw.close()

    def __enter__(self) -> Self:
        """Use the connection as a context that closes it."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()

    def __getattr__(self, name: str) -> Any:
        """Hand out the methods that fetch a result; DuckDB's others are not offered."""
        if name not in RESULTS:
            raise AttributeError(
                f"a catalog connection has execute, sql, description, close and"
                f" {', '.join(sorted(RESULTS))}; not {name}"
            )
        fetch = getattr(self._raw, name)

        def translated(*args: Any, **kwargs: Any) -> Any:
            try:
                return self._interruptible(lambda: fetch(*args, **kwargs))
            except duckdb.Error as fault:
                raise QueryError(one_line(fault)) from fault

        return translated

    def _again(self, run: Callable[[], Any]) -> Any:
        """Run; once more where it failed because files were folded away or are damaged."""
        try:
            return self._interruptible(run)
        except NOT_OF_THE_FILES as fault:
            raise QueryError(one_line(fault)) from fault
        except duckdb.Error as fault:
            if not self._refresh():
                raise QueryError(one_line(fault)) from fault
        try:
            return self._interruptible(run)
        except duckdb.Error as fault:
            raise QueryError(one_line(fault)) from fault

    def _interruptible(self, run: Callable[[], Any]) -> Any:
        """Run so that Ctrl-C ends it: DuckDB 2.0 itself does not look for signals."""
        if threading.current_thread() is not threading.main_thread():
            return run()
        stop = threading.Event()
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(None if stop.is_set() else run())
            except BaseException as fault:
                future.set_exception(fault)

        thread = threading.Thread(target=work, name="flightrec-query", daemon=True)
        try:
            thread.start()
            return future.result()
        except KeyboardInterrupt:
            stop.set()
            while thread.is_alive():  # an interruption before DuckDB has begun is lost
                self._raw.interrupt()
                thread.join(0.1)
            raise


def connect_files(files: CatalogFiles) -> LockedConnection:
    """Return a connection to the views over a store's Parquet files.

    Files that cannot be read are passed over, and named in a warning.
    """
    raw = _with_views()
    reading: dict[str, list[Path]] = {name: files.listing(name) for name in tables()}
    try:
        _read(raw, reading)
    except duckdb.Error:
        reading = _sound(files)
        _read(raw, reading)

    def refresh() -> bool:
        before = dict(reading)
        reading.update(_sound(files))
        if reading == before:
            return False
        _read(raw, reading)
        return True

    _lock(raw, files.folder)
    return LockedConnection(raw, refresh)


def connect_rows(rows: Mapping[str, pa.Table]) -> LockedConnection:
    """Return a connection to the views over rows in memory, copied in."""
    raw = _with_views()
    for name, table in rows.items():
        raw.register("given", table)
        raw.execute(f"INSERT INTO typed.{name} BY NAME SELECT * FROM given")
        raw.unregister("given")
    _lock(raw, None)
    return LockedConnection(raw, lambda: False)


def _with_views() -> duckdb.DuckDBPyConnection:
    raw = duckdb.connect(":memory:")
    raw.execute(script())
    return raw


def _lock(raw: duckdb.DuckDBPyConnection, folder: Path | None) -> None:
    """Let nothing in but `folder`, and let nobody change that."""
    allowed = {str(folder), _as_pattern(str(folder))} if folder else set()
    raw.execute(f"SET allowed_directories = [{', '.join(map(_quoted, sorted(allowed)))}]")
    raw.execute("SET temp_directory = ''")
    raw.execute("SET autoinstall_known_extensions = false")
    raw.execute("SET autoload_known_extensions = false")
    raw.execute("SET python_enable_replacements = false")
    raw.execute("SET enable_external_access = false")
    raw.execute("SET lock_configuration = true")


def _read(raw: duckdb.DuckDBPyConnection, reading: Mapping[str, list[Path]]) -> None:
    """Let the views read these files."""
    for name, paths in reading.items():
        source = f"typed.{name}"
        if paths:
            listed = ", ".join(_quoted(_as_pattern(str(path))) for path in paths)
            source = (
                f"(FROM typed.{name} UNION ALL BY NAME FROM read_parquet([{listed}],"
                " union_by_name = true, hive_partitioning = false))"
            )
        columns = ", ".join(
            f'CAST("{column.name}" AS {column.type}) AS "{column.name}"'
            for column in tables()[name].columns
        )
        raw.execute(f"CREATE OR REPLACE VIEW rows.{name} AS SELECT {columns} FROM {source}")


def _sound(files: CatalogFiles) -> dict[str, list[Path]]:
    """Return the files that can be read, after naming those that cannot."""
    sound: dict[str, list[Path]] = {}
    for name in tables():
        sound[name] = []
        for path in files.listing(name):
            if damaged(path):
                log.warning(
                    "skipped %s, which cannot be read; `flightrec doctor --fix` makes it anew",
                    path,
                )
            else:
                sound[name].append(path)
    return sound


def _as_pattern(path: str) -> str:
    """Escape what DuckDB would take for a pattern in a path."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
