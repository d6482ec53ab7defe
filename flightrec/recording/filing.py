"""Takes finished drafts to the store in the background, and says so in one line each."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from flightrec.background import Background
from flightrec.incident.keys import recording_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from flightrec.recording.capture import Draft
    from flightrec.stores import Store

log = logging.getLogger("flightrec")

WAITING = 4
"""Incidents that may wait for the disk; each holds a copy of the weights."""

CLOSE_SECONDS = 300.0
"""How long the end of a run waits for incidents that are still being written."""


class Filing:
    """The incidents of one run: numbered, bounded, written in order."""

    def __init__(self, store: Store, *, limit: int, late: Callable[[], dict[str, Any]]) -> None:
        """Write into `store` at most `limit` incidents; `late()` adds manifest entries."""
        self.store = store
        store.prepare()
        self.incidents: list[str] = []
        self.dropped: Counter[str] = Counter()
        self.written = 0
        self._limit = limit
        self._late = late
        self._key = recording_key()
        self._background = Background(limit=WAITING, failed=self._failed)

    def refuses(self) -> str | None:
        """Return why no further incident is taken, or None."""
        if len(self.incidents) >= self._limit:
            return f"over max_incidents={self._limit}"
        return None

    def submit(self, draft: Draft, where: str) -> bool:
        """Queue a draft; return whether it will be written."""
        self.incidents.append(draft.id)
        if self._background.submit(lambda: self._write(draft, where)):
            return True
        self.incidents.remove(draft.id)
        self.dropped["the disk did not keep up"] += 1
        return False

    def flush(self) -> bool:
        """Wait until everything queued is on disk; return whether it is."""
        return self._background.flush(CLOSE_SECONDS)

    def close(self) -> bool:
        """Write what is queued and end the thread; return whether all of it was written."""
        return self._background.close(CLOSE_SECONDS)

    def _write(self, draft: Draft, where: str) -> None:
        started = time.perf_counter()
        try:
            self.store.put(draft.finish(self._late()), self._key)
        except Exception:
            self.incidents.remove(draft.id)
            raise
        self.written += 1
        manifest = draft.manifest
        log.warning(
            "%s at step %d in %s, written in %.1f s: flightrec bisect %s --store %s",
            manifest["kind"],
            manifest["step"],
            where,
            time.perf_counter() - started,
            draft.id,
            self.store.url,
        )

    def _failed(self, fault: Exception) -> None:
        log.error("an incident could not be written: %s", fault)
        self.dropped[f"incident not written: {type(fault).__name__}: {fault}"] += 1
