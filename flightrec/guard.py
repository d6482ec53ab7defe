"""The one place where our own faults are swallowed, counted and, in tests, raised again."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import TYPE_CHECKING

from flightrec.errors import IncidentError

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("flightrec")

FAULTS: Counter[str] = Counter()
"""Faults of ours in this process, by where they happened."""


def strict() -> bool:
    """Are our own faults raised (tests set FLIGHTREC_STRICT=1) instead of counted?"""
    return os.environ.get("FLIGHTREC_STRICT") == "1"


class guarded:
    """Keep a fault of ours out of the user's run: count it under `where`, log it at debug.

    `IncidentError` passes: it is raised because the user asked for it. KeyboardInterrupt and
    SystemExit pass too, since they are not ours. A class and not a generator, because it is
    entered a dozen times per step.
    """

    __slots__ = ("_faults", "_where")

    def __init__(self, where: str, faults: Counter[str] | None = None) -> None:
        """Count into `faults` as well, where it is given."""
        self._where = where
        self._faults = faults

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Swallow what is ours, unless tests want to see it."""
        if fault is None or not isinstance(fault, Exception) or isinstance(fault, IncidentError):
            return False
        FAULTS[self._where] += 1
        if self._faults is not None:
            self._faults[f"fault in {self._where}: {type(fault).__name__}"] += 1
        log.debug("recorder fault in %s", self._where, exc_info=fault)
        return not strict()
