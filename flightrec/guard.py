"""The one place where our own faults are swallowed, counted and, in tests, raised again."""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flightrec.errors import IncidentError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("flightrec")

FAULTS: Counter[str] = Counter()
"""Faults of ours in this process, by where they happened."""


def strict() -> bool:
    """Are our own faults raised (tests set FLIGHTREC_STRICT=1) instead of counted?"""
    return os.environ.get("FLIGHTREC_STRICT") == "1"


@contextmanager
def guarded(where: str, faults: Counter[str] | None = None) -> Iterator[None]:
    """Keep a fault of ours out of the user's run: count it under `where`, log it at debug.

    `IncidentError` passes: it is raised because the user asked for it. KeyboardInterrupt and
    SystemExit pass too, since they are not ours.
    """
    try:
        yield
    except IncidentError:
        raise
    except Exception as fault:
        FAULTS[where] += 1
        if faults is not None:
            faults[f"fault in {where}: {type(fault).__name__}"] += 1
        log.debug("recorder fault in %s", where, exc_info=True)
        if strict():
            raise
