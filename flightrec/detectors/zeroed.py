"""Did an output that used to say something become zero, or nearly so?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from flightrec.detectors._history import absmax, median, places, row_of
from flightrec.errors import UsageError
from flightrec.types import Finding, Stat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flightrec.types import Site, StepRecord, Window

TINY = 5e-324
"""Smallest number above zero, so that a median of zero can be divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zeroed:
    """Report outputs of two or more elements whose absmax falls under `ratio` of its median.

    Without earlier steps only exact zeros count. Silent where zeros were there before (sparse
    outputs), where a model starts from zero weights and learns, and, for a model that trains,
    before the first backward has shown whether it does.
    """

    ratio: float = 1e-3
    """Share of the median absmax below which an output counts as zero. A normalisation over one
    element leaves about 1e-6 of rounding, healthy outputs move by factors, not by thousands."""

    recent: int = 8
    """Earlier steps whose median is compared with."""

    precedence: ClassVar[int] = 10

    def __post_init__(self) -> None:
        """Refuse limits that would report healthy outputs."""
        if not 0 < self.ratio < 1:
            raise UsageError(f"zeroed.ratio must be between 0 and 1, got {self.ratio!r}")
        if self.recent < 1:
            raise UsageError(f"zeroed.recent must be at least 1, got {self.recent!r}")

    def check(self, window: Window) -> Iterator[Finding]:
        """Yield findings in execution order."""
        newest = window.steps[-1]
        for row, site in enumerate(newest.sites):
            if site.kind != "output" or not newest.stats_SK[row, Stat.NUMEL] >= 2:
                continue
            limit = self._limit(window.steps[:-1], newest, row, site)
            value = absmax(newest, row)
            if limit is None or not (value < limit or value == 0):
                continue
            if limit == 0 and _undecided(window):
                continue
            if window.facts.get("learning_from_zero", False):
                return
            yield self._finding(newest, site, value, limit)

    def _limit(
        self, earlier: tuple[StepRecord, ...], newest: StepRecord, row: int, site: Site
    ) -> float | None:
        """Return what the absmax must reach, 0 without history, None where all is well.

        Looks back only until one earlier value was no larger, which is nearly always at once.
        """
        value = absmax(newest, row)
        seen: list[float] = []
        for record in reversed(earlier[-self.recent :]):
            place = row_of(record, site, row)
            before = math.nan if place is None else absmax(record, place)
            if before <= value:
                return None
            if math.isfinite(before):
                seen.append(before)
        if seen and not value < self.ratio * median(seen):
            return None
        if not seen and value != 0:
            return None
        return self._confirmed(earlier, newest, row, value)

    def _confirmed(
        self, earlier: tuple[StepRecord, ...], newest: StepRecord, row: int, value: float
    ) -> float | None:
        """Look at the whole window: outputs that vary by decades must fall by twice as many."""
        site = newest.sites[row]
        others = [
            (record, place)
            for record, place in places((newest,), replace(site, call=-1))
            if place != row
        ]
        found = places(earlier, site) or others
        known = [
            before for record, place in found if math.isfinite(before := absmax(record, place))
        ]
        if not known:
            return 0.0
        usual, varies = median(known), min(known) / max(median(known), TINY)
        if varies <= self.ratio or (value > 0 and value / usual >= varies * varies):
            return None
        return self.ratio * usual

    def _finding(self, newest: StepRecord, site: Site, value: float, limit: float) -> Finding:
        where = f"{site.leaf} of {site.module or 'the model'}".strip()
        usual = f", usually {limit / self.ratio:.3g}" if limit else ", and no step before it"
        return Finding(
            detector="zeroed",
            site=site,
            step=newest.step,
            value=value,
            limit=limit,
            kind="zeroed",
            text=f"output {where} is zero: absmax {value:.3g}{usual}",
        )


def _undecided(window: Window) -> bool:
    """May a backward still show that a model starts from zero weights and learns?"""
    return window.facts.get("trains", False) and not window.facts.get("backward", False)


Detector = Zeroed
