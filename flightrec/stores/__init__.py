"""Where incidents live: one file per kind of store, picked by the scheme of its URL."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from flightrec.errors import IncidentNotFoundError, StoreError, UsageError
from flightrec.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from flightrec.catalog.views import LockedConnection
    from flightrec.incident.reader import Incident
    from flightrec.types import Capture, Verdict

LISTED = 8
"""Incidents named in a message about an ambiguous prefix."""

FOLDER = "incidents"
"""Folder inside a store that holds the incident files, by day."""

ROWS_SQL = """
SELECT i.*, v.status, v.fidelity, v.phase, v.module AS culprit, v.op
FROM incidents AS i
LEFT JOIN (FROM verdicts QUALIFY row_number() OVER (
    PARTITION BY incident_id ORDER BY judged DESC) = 1) AS v ON v.incident_id = i.id
ORDER BY i.id
"""


class Store(ABC):
    """The incidents of some runs, and a catalog of them.

    Writers call `prepare` once and then `put`; readers call `ids`, `resolve`, `open`, `rows`
    and `connect` in any order, also while a writer of another process is at work. A store
    that cannot be written still does all of the reading.
    """

    supports_writes: ClassVar[bool]
    """Can this kind of store take incidents and verdicts?"""

    supports_deletes: ClassVar[bool]
    """Can this kind of store let go of incidents?"""

    url: str
    """What `open_store` was given."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the store ready for `put`; raises `StoreError` where the machine refuses."""

    @abstractmethod
    def ids(self) -> list[str]:
        """Return the ids of all incidents, oldest first."""

    @abstractmethod
    def path(self, id: str) -> Path:
        """Return the incident's file; raises `IncidentNotFoundError`."""

    def paths(self) -> dict[str, Path]:
        """Return the files of all incidents by id; a store may do this in one go."""
        return {id: self.path(id) for id in self.ids()}

    @abstractmethod
    def put(self, capture: Capture, key: bytes | None = None) -> Path:
        """Write an incident, signed with `key`, and its rows; returns its file.

        Raises `StoreError` where the machine refuses. An incident whose rows cannot be
        written is kept all the same: `repair` adds them.
        """

    @abstractmethod
    def delete_many(self, ids: Collection[str]) -> None:
        """Remove incidents, their rows and their verdicts; ids that are not there are ignored."""

    @abstractmethod
    def connect(self) -> LockedConnection:
        """Return a connection that sees the views of this store and nothing else."""

    @abstractmethod
    def add_verdict(self, verdict: Verdict, *, command: str, device: str = "cpu") -> None:
        """Keep a verdict in the view `verdicts`; raises `StoreError` where it cannot."""

    @abstractmethod
    def compact(self) -> None:
        """Put the rows of many incidents into few files."""

    @abstractmethod
    def problems(self) -> list[str]:
        """Return one line for each thing wrong with the store, but for damaged incidents."""

    @abstractmethod
    def repair(self) -> list[str]:
        """Make the catalog anew from the incidents; returns a line per incident left out."""

    def open(self, id: str) -> Incident:
        """Open an incident by id, unique prefix, path or `latest`.

        Raises what `resolve` raises, `CorruptIncidentError` and `NewerFormatError`.
        """
        # torch is loaded here: 1.2 s that listing, querying and pruning do not have to wait.
        from flightrec.incident.reader import open_incident

        return open_incident(self.path(self.resolve(id)))

    def delete(self, id: str) -> None:
        """Remove one incident; raises `IncidentNotFoundError`."""
        self.path(id)
        self.delete_many([id])

    def rows(self) -> list[dict[str, Any]]:
        """Return the columns of `incidents` and the newest verdict per incident, oldest first.

        An incident that the catalog does not know has its id and nothing else.
        """
        with self.connect() as connection:
            found = connection.execute(ROWS_SQL).fetchall()
            names = [column[0] for column in connection.description]
        known = {row[0]: dict(zip(names, row, strict=True)) for row in found}
        unknown = dict.fromkeys(names)
        return [known.get(id) or unknown | {"id": id} for id in self.ids()]

    def verdicts(self, id: str) -> list[dict[str, Any]]:
        """Return the rows of the view `verdicts` about one incident, oldest first."""
        with self.connect() as connection:
            connection.execute("SELECT * FROM verdicts WHERE incident_id = ? ORDER BY judged", [id])
            found = connection.fetchall()
            names = [column[0] for column in connection.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def exists(self) -> bool:
        """Is there anything at the URL yet?"""
        return True

    def resolve(self, text: str) -> str:
        """Return the id meant by an id, a unique prefix of one, a path, or `latest`.

        Raises `IncidentNotFoundError`, and `UsageError` for a prefix that several share.
        """
        ids = self.ids()
        if not ids:
            raise IncidentNotFoundError(f"the store {self.url} has no incidents")
        if text == "latest":
            return ids[-1]
        if text in ids:
            return text
        if _is_path(text):
            return self._at(Path(text))
        found = [id for id in ids if id.startswith(text)] if text else ids
        if not found:
            raise IncidentNotFoundError(
                f"no incident {text!r} in {self.url}; `flightrec ls` lists the {len(ids)} there are"
            )
        if len(found) > 1:
            shown = ", ".join(found[:LISTED]) + (", ..." if len(found) > LISTED else "")
            raise UsageError(f"{text!r} could be any of {len(found)} incidents: {shown}")
        return found[0]

    def _at(self, path: Path) -> str:
        """Return the id of the incident whose file this is."""
        for id in self.ids():
            if path.stem == id and path.exists() and self.path(id).samefile(path):
                return id
        raise IncidentNotFoundError(f"{path} is not an incident of {self.url}")


def open_store(url: str | os.PathLike[str]) -> Store:
    """Return the store at a folder or URL (`memory://name`); this makes nothing on disk.

    Raises `UnknownPluginError`, naming the schemes there are.
    """
    text = os.fspath(url)
    scheme, separator, _ = text.partition("://")
    store: Store = Registry("stores").load(scheme if separator else "local")(text)
    return store


def existing_store(url: str | os.PathLike[str]) -> Store:
    """Return the store at a folder or URL; raises `StoreError` where there is nothing."""
    store = open_store(url)
    if not store.exists():
        raise StoreError(
            f"there is no store at {store.url}; name one with --store or FLIGHTREC_STORE"
        )
    return store


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an incident was found."""

    path: Path
    """Its file."""

    store: Store | None
    """The store it belongs to; None for a file that lies anywhere else."""

    @property
    def id(self) -> str:
        """Return its id, which is its file's name."""
        return self.path.stem


def locate(url: str | os.PathLike[str], text: str) -> Place:
    """Find the incident a user means by a path, an id, a unique prefix or `latest`.

    A path leads to the store it lies in, so `url` is not looked at then. Raises
    `IncidentNotFoundError`, `UsageError` for a prefix that several share, and `StoreError`
    where there is no such store.
    """
    if not _is_path(text):
        store = existing_store(url)
        return Place(path=store.path(store.resolve(text)), store=store)
    path = Path(text).absolute()
    if not path.is_file():
        raise IncidentNotFoundError(f"there is no file {text}")
    day, incidents, root = path.parents[:3] if len(path.parents) > 2 else (None, None, None)
    if root and incidents and day and incidents.name == FOLDER and day.name.startswith("date="):
        return Place(path=path, store=open_store(root))
    return Place(path=path, store=None)


def _is_path(text: str) -> bool:
    return text.endswith(".h5") or "/" in text or os.sep in text
