"""The catalog's Parquet files: written, listed, folded into fewer, and cleared of incidents."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types

from flightrec.catalog.lock import locked
from flightrec.catalog.schema import tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

FOLD_AT = 256
"""Small files of one table at which a writer folds them into one."""

ROW_GROUP = 131_072
"""Rows per row group of a folded file; DuckDB reads one group per thread at a time."""

UNREADABLE = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for a file that is damaged, foreign or gone."""


class CatalogFiles:
    """The rows of one store as Parquet files below one folder.

    A *small* file holds the rows of one incident in one table, at
    `<table>/date=<day>/run=<run>/<incident>.parquet` (verdicts: `<incident>@<time>.parquet`).
    A *folded* file, `<table>/folded-*.parquet`, replaces many of them. While it does, a list
    beside it (`folded-*.json`) hides what it replaces, so that no reader sees a row twice,
    even when the process dies in between.
    """

    def __init__(self, folder: Path) -> None:
        """Use `folder`; it is made when the first row is written."""
        self.folder = folder

    def listing(self, table: str) -> list[Path]:
        """Return the files that hold the rows of `table`: folded ones first, then by path."""
        hidden = {self.folder / name for names in self._replaced(table) for name in names}
        return [path for path in self._folded(table) + self._small(table) if path not in hidden]

    def write(self, rows: Mapping[str, pa.Table], stem: str) -> None:
        """Write the rows of one incident, or one verdict; folds a table that has many files.

        Raises `OSError` where the machine refuses.
        """
        for name, table in rows.items():
            day, run = table["date"][0].as_py(), table["run"][0].as_py()
            path = (
                self.folder / name / f"date={day}" / f"run={folder_name(run)}" / f"{stem}.parquet"
            )
            write_atomic(table, path)
        for name in rows:
            if len(self._small(name)) >= FOLD_AT:
                self.fold(name)

    def fold(self, name: str) -> None:
        """Replace the small files of a table by one; does nothing while another process does."""
        with locked(self.folder, wait=False) as mine:
            if mine:
                self._finish(name)
                self._replace(name, _readable(self._small(name)))

    def compact(self) -> None:
        """Replace all files of each table by one, in order of time."""
        with locked(self.folder):
            for name in tables():
                self._finish(name)
                files = self.listing(name)
                if len(files) > 1:
                    self._replace(name, _readable(files))

    def drop(self, ids: Collection[str]) -> None:
        """Remove all rows of these incidents."""
        with locked(self.folder):
            for name in tables():
                self._finish(name)
                for path in self._small(name):
                    if incident_of(path) in ids:
                        path.unlink(missing_ok=True)
                for path in _readable(self._folded(name)):
                    if not set(ids).isdisjoint(_ids_in(path, name)):
                        self._replace(name, [path], drop=ids)

    def clear(self) -> None:
        """Remove all files but the verdicts, which nothing else holds."""
        with locked(self.folder):
            for name in tables():
                self._finish(name)
                keep = set(_readable(self.listing(name))) if name == "verdicts" else set()
                for path in self._folded(name) + self._small(name):
                    if path not in keep:
                        path.unlink(missing_ok=True)

    def _folded(self, name: str) -> list[Path]:
        return sorted(_plain_files(self.folder / name, "folded-*.parquet"))

    def _small(self, name: str) -> list[Path]:
        return sorted(_plain_files(self.folder / name, "date=*/run=*/[!.]*.parquet"))

    def _replaced(self, name: str) -> Iterator[list[str]]:
        """Yield the lists of files that a folded file, if it is there, stands for."""
        for path in _plain_files(self.folder / name, "folded-*.json"):
            if path.with_suffix(".parquet").exists():
                with suppress(OSError, ValueError):
                    yield json.loads(path.read_text(encoding="utf-8"))

    def _finish(self, name: str) -> None:
        """Complete a replacement that a dead process left half done; needs the lock."""
        for names in list(self._replaced(name)):
            for other in names:
                (self.folder / other).unlink(missing_ok=True)
        for path in _plain_files(self.folder / name, "folded-*.json"):
            path.unlink(missing_ok=True)

    def _replace(self, name: str, files: Sequence[Path], drop: Collection[str] = ()) -> None:
        """Write the rows of `files`, without incidents `drop`, to one file; needs the lock."""
        if not files:
            return
        stem = f"folded-{time.time_ns():020d}-{secrets.token_hex(3)}"
        target = self.folder / name / f"{stem}.parquet"
        temporary = target.with_name(f".{stem}.tmp")
        try:
            if _merge(name, files, temporary, drop):
                listed = [path.relative_to(self.folder).as_posix() for path in files]
                target.with_suffix(".json").write_text(json.dumps(listed), encoding="utf-8")
                temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        for path in files:
            path.unlink(missing_ok=True)
        target.with_suffix(".json").unlink(missing_ok=True)


def incident_of(path: Path) -> str:
    """Return the incident whose rows a small file holds."""
    return path.stem.partition("@")[0]


def folder_name(run: str) -> str:
    """Return a run's id as part of a folder's name, on every file system."""
    quoted = quote(run, safe="")
    if len(quoted) <= 100:
        return quoted
    return f"{quoted[:80]}-{hashlib.blake2b(run.encode(), digest_size=8).hexdigest()}"


def write_atomic(table: pa.Table, path: Path) -> None:
    """Write one Parquet file, mode 0600, so that a reader sees all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(3)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def damaged(path: Path) -> bool:
    """Is this a file of which not every row can be read?"""
    try:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches(batch_size=ROW_GROUP):
                pass
    except UNREADABLE:
        return True
    return False


def _readable(files: Sequence[Path]) -> list[Path]:
    return [path for path in files if not damaged(path)]


def _plain_files(folder: Path, pattern: str) -> list[Path]:
    """Return what matches; a link could lead out of the store, so links are passed over."""
    return [path for path in folder.glob(pattern) if path.is_file() and not path.is_symlink()]


def _ids_in(path: Path, name: str) -> set[str]:
    key = "id" if name == "incidents" else "incident_id"
    return set(pq.read_table(path, columns=[key])[key].to_pylist())


def _merge(name: str, files: Sequence[Path], target: Path, drop: Collection[str]) -> int:
    """Stream the rows of `files` into `target`; returns how many, and writes none for 0."""
    schemas = [tables()[name].arrow, *(pq.read_schema(path) for path in files)]
    schema = pa.unify_schemas(
        [each.remove_metadata() for each in schemas], promote_options="permissive"
    )
    key = "id" if name == "incidents" else "incident_id"
    written = 0
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for table in _in_groups(files, schema, key, drop):
                writer.write_table(table, row_group_size=ROW_GROUP)
                written += table.num_rows
        file.flush()
        os.fsync(file.fileno())
    return written


def _in_groups(
    files: Sequence[Path], schema: pa.Schema, key: str, drop: Collection[str]
) -> Iterator[pa.Table]:
    """Yield the rows of `files` in tables of about `ROW_GROUP` rows."""
    empty, waiting, count = schema.empty_table(), [], 0
    unwanted = pa.array(list(drop), type=pa.string())
    for path in files:
        with pq.ParquetFile(path) as source:
            for batch in source.iter_batches(batch_size=ROW_GROUP):
                table = pa.Table.from_batches([batch])
                if len(unwanted):
                    table = table.filter(pc.invert(pc.is_in(table[key], unwanted)))
                waiting.append(table)
                count += table.num_rows
                if count >= ROW_GROUP:
                    yield pa.concat_tables([empty, *waiting], promote_options="permissive")
                    waiting, count = [], 0
    if count:
        yield pa.concat_tables([empty, *waiting], promote_options="permissive")
