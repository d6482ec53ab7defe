"""The store for tests: gone with the process, rows in memory, incidents in a private folder."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

import flightrec.stores
from flightrec.catalog.rows import rows_of
from flightrec.catalog.verdicts import verdict_row
from flightrec.catalog.views import connect_rows
from flightrec.errors import IncidentNotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection

    from flightrec.catalog.views import LockedConnection
    from flightrec.types import Capture, Verdict


class MemoryStore(flightrec.stores.Store):
    """`memory://name`; stores of one name are one store within a process."""

    supports_writes: ClassVar[bool] = True
    supports_deletes: ClassVar[bool] = True

    _shared: ClassVar[dict[str, dict[str, Any]]] = {}
    """What the stores of one name have in common; kept until the process ends."""

    def __init__(self, url: str) -> None:
        """Join the store of that URL, which is empty where it is new."""
        self.url = url
        shared = self._shared.setdefault(url, {"paths": {}, "rows": {}})
        self._paths: dict[str, Path] = shared["paths"]
        self._rows: dict[str, dict[str, pa.Table]] = shared["rows"]
        self._of_all = shared

    def prepare(self) -> None:
        """Make the private folder, which goes when the process ends."""
        if "folder" not in self._of_all:
            self._of_all["folder"] = tempfile.TemporaryDirectory(prefix="flightrec-")

    def ids(self) -> list[str]:
        """Return the ids of all incidents, oldest first."""
        return sorted(self._paths)

    def path(self, id: str) -> Path:
        """Return the incident's file; raises `IncidentNotFoundError`."""
        if id not in self._paths:
            raise IncidentNotFoundError(f"no incident {id!r} in {self.url}")
        return self._paths[id]

    def put(self, capture: Capture, key: bytes | None = None) -> Path:
        """Write an incident, signed with `key`, and its rows; returns its file."""
        from flightrec.incident.writer import write

        self.prepare()
        path = write(capture, Path(self._of_all["folder"].name), key=key)
        self._paths[capture.id] = path
        self._index(capture.id)
        return path

    def delete_many(self, ids: Collection[str]) -> None:
        """Remove incidents, their rows and their verdicts; ids that are not there are ignored."""
        for id in ids:
            if id in self._paths:
                self._paths.pop(id).unlink(missing_ok=True)
        for stem in [stem for stem in self._rows if stem.partition("@")[0] in ids]:
            del self._rows[stem]

    def connect(self) -> LockedConnection:
        """Return a connection that sees the views of this store and nothing else."""
        merged: dict[str, list[pa.Table]] = {}
        for tables in self._rows.values():
            for name, table in tables.items():
                merged.setdefault(name, []).append(table)
        return connect_rows({name: pa.concat_tables(each) for name, each in merged.items()})

    def add_verdict(self, verdict: Verdict, *, command: str, device: str = "cpu") -> None:
        """Keep a verdict in the view `verdicts`."""
        with self.open(verdict.incident_id) as incident:
            manifest = incident.manifest
        stem = f"{verdict.incident_id}@{time.time_ns():020d}"
        self._rows[stem] = {"verdicts": verdict_row(verdict, manifest, command, device)}

    def compact(self) -> None:
        """Do nothing: rows in memory have no files."""

    def problems(self) -> list[str]:
        """Return nothing: rows and incidents come and go together."""
        return []

    def repair(self) -> list[str]:
        """Read the rows anew from the incidents."""
        for id in self._paths:
            self._index(id)
        return []

    def _index(self, id: str) -> None:
        from flightrec.incident.reader import open_incident

        with open_incident(self._paths[id]) as incident:
            self._rows[id] = rows_of(incident, self._paths[id].name)


Store: Any = MemoryStore
