"""The store in a folder: one HDF5 file per incident, by day, and Parquet files beside them."""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import flightrec.stores
from flightrec.catalog.files import CatalogFiles, damaged
from flightrec.catalog.rows import partition, rows_of
from flightrec.catalog.schema import tables
from flightrec.catalog.verdicts import verdict_row
from flightrec.catalog.views import connect_files
from flightrec.errors import FlightrecError, IncidentNotFoundError, StoreError
from flightrec.guard import guarded
from flightrec.incident.layout import is_stale
from flightrec.stores import FOLDER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from flightrec.catalog.views import LockedConnection
    from flightrec.types import Capture, Verdict

STALE_SECONDS = 3600.0
"""Age from which a half-written file of the catalog is taken for a dead process's."""


class LocalStore(flightrec.stores.Store):
    """A folder; `<folder>/incidents/date=YYYY-MM-DD/<id>.h5` and `<folder>/catalog/`."""

    supports_writes: ClassVar[bool] = True
    supports_deletes: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        """Use a folder, given as a path or as `local://path`; nothing is made yet."""
        self.url = url
        self.root = Path(url.removeprefix("local://")).absolute()
        self._incidents = self.root / FOLDER
        self._catalog = CatalogFiles(self.root / "catalog")

    def prepare(self) -> None:
        """Make the folder; raises `StoreError` where the machine refuses."""
        with self._writing():
            self._incidents.mkdir(parents=True, exist_ok=True)
            probe = self._incidents / f".{os.getpid()}.tmp"
            probe.touch(mode=0o600)
            probe.unlink()

    def exists(self) -> bool:
        """Is there such a folder?"""
        return self.root.is_dir()

    def ids(self) -> list[str]:
        """Return the ids of all incidents, oldest first."""
        return sorted(self._paths())

    def path(self, id: str) -> Path:
        """Return the incident's file; raises `IncidentNotFoundError`."""
        found = self._paths().get(id)
        if found is None:
            raise IncidentNotFoundError(f"no incident {id!r} in {self.url}")
        return found

    def paths(self) -> dict[str, Path]:
        """Return the files of all incidents by id."""
        return self._paths()

    def put(self, capture: Capture, key: bytes | None = None) -> Path:
        """Write an incident, signed with `key`, and its rows; returns its file."""
        # torch is loaded here: 1.2 s that listing, querying and pruning do not have to wait.
        from flightrec.incident.reader import open_incident
        from flightrec.incident.writer import write

        folder = self._incidents / f"date={partition(capture.manifest)[0]}"
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            path = write(capture, folder, key=key)
        with guarded("catalog rows"), open_incident(path) as incident:
            self._catalog.write(rows_of(incident, self._relative(path)), capture.id)
        return path

    def delete_many(self, ids: Collection[str]) -> None:
        """Remove incidents, their rows and their verdicts; ids that are not there are ignored."""
        paths = self._paths()
        with self._writing():
            for id in ids:
                if id in paths:
                    paths[id].unlink(missing_ok=True)
            self._catalog.drop(ids)

    def connect(self) -> LockedConnection:
        """Return a connection that sees the views of this store and nothing else."""
        return connect_files(self._catalog)

    def add_verdict(self, verdict: Verdict, *, command: str, device: str = "cpu") -> None:
        """Keep a verdict in the view `verdicts`; raises `StoreError` where it cannot."""
        with self.open(verdict.incident_id) as incident:
            manifest = incident.manifest
        stem = f"{verdict.incident_id}@{time.time_ns():020d}"
        with self._writing():
            row = verdict_row(verdict, manifest, command, device)
            self._catalog.write({"verdicts": row}, stem)

    def compact(self) -> None:
        """Put the rows of many incidents into few files."""
        with self._writing():
            self._catalog.compact()

    def problems(self) -> list[str]:
        """Return one line for each thing wrong with the store, but for damaged incidents."""
        return [*self._wrong_files(), *self._wrong_rows()]

    def repair(self) -> list[str]:
        """Make the catalog anew from the incidents; returns a line per incident left out.

        Also removes temporary files that dead processes left behind.
        """
        from flightrec.incident.reader import open_incident

        left_out = []
        with self._writing():
            for path in self._stale():
                path.unlink(missing_ok=True)
            self._catalog.clear()
            for id, path in sorted(self._paths().items()):
                try:
                    with open_incident(path) as incident:
                        rows = rows_of(incident, self._relative(path))
                except FlightrecError as fault:
                    left_out.append(str(fault))
                else:
                    self._catalog.write(rows, id)
        return left_out

    def _paths(self) -> dict[str, Path]:
        return {
            path.stem: path for path in self._incidents.glob("date=*/[!.]*.h5") if path.is_file()
        }

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _stale(self) -> list[Path]:
        """Return what processes that died left half written."""
        before = time.time() - STALE_SECONDS
        rows = (self.root / "catalog").glob("**/.*.tmp")
        return [
            *(path for path in self._incidents.glob("date=*/.*") if is_stale(path)),
            *(path for path in rows if path.is_file() and path.stat().st_mtime < before),
        ]

    def _wrong_files(self) -> Iterator[str]:
        for path in self._stale():
            yield f"{self._relative(path)} was left by a process that died; --fix removes it"
        for id, path in sorted(self._paths().items()):
            if os.name == "posix" and path.stat().st_mode & 0o077:
                yield f"incident {id} can be read by others; chmod 600 {path}"
        if self.root.exists() and not os.access(self.root, os.W_OK):
            yield f"{self.root} cannot be written; verdicts will not be kept"

    def _wrong_rows(self) -> Iterator[str]:
        for name in tables():
            for path in self._catalog.listing(name):
                if damaged(path):
                    yield f"{self._relative(path)} cannot be read; --fix makes it anew"
        with self.connect() as connection:
            found = connection.execute("SELECT id FROM incidents").fetchall()
        known, there = [row[0] for row in found], set(self._paths())
        for id in sorted(there.difference(known)):
            yield f"incident {id} is missing from the catalog; --fix adds it"
        for id in sorted(set(known).difference(there)):
            yield f"the catalog lists incident {id}, whose file is gone; --fix removes it"
        for id in sorted({id for id in known if known.count(id) > 1}):
            yield f"the catalog lists incident {id} more than once; --fix mends it"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn what the machine refuses into one line that says what to do."""
        try:
            yield
        except FlightrecError:
            raise
        except OSError as fault:
            raise StoreError(f"cannot write to the store {self.url}: {_advice(fault)}") from fault


def _advice(fault: OSError) -> str:
    if fault.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "the disk is full; `flightrec prune` makes room"
    if fault.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return "there is no permission to; choose another folder with --store"
    return str(fault.strerror or fault)


Store: Any = LocalStore
