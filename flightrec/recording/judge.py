"""Asks the detectors about the newest step and decides what becomes an incident."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from flightrec.detectors import EARLY
from flightrec.detectors.nonfinite import kind_of, stage
from flightrec.guard import guarded
from flightrec.types import Stat, Window

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from flightrec.protocols import Detector
    from flightrec.types import Finding, Site, StepRecord

FAMILIES = {"nan": "nonfinite", "inf": "nonfinite"}
"""Kinds that follow from one another; every other kind is its own family."""


class Facts(Mapping[str, bool]):
    """Yes-or-no facts about the newest step, each found out only when a detector asks."""

    def __init__(self, asked: Mapping[str, Callable[[], bool]]) -> None:
        """Answer by calling `asked[name]()` once."""
        self._asked = asked
        self._known: dict[str, bool] = {}

    def __getitem__(self, name: str) -> bool:
        """Return the fact; KeyError where there is none of that name."""
        if name not in self._known:
            self._known[name] = self._asked[name]()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._asked)

    def __len__(self) -> int:
        """Return how many facts there are."""
        return len(self._asked)


class Judge:
    """Findings of the running step, and the memory of what was already reported."""

    def __init__(
        self, detectors: Sequence[Detector], known_bad: frozenset[Site], faults: Counter[str]
    ) -> None:
        """Ask `detectors`; buffers in `known_bad` held NaN or Inf before the run began."""
        self._detectors = detectors
        self._known_bad = known_bad
        self._faults = faults
        self._seen: set[tuple[str, Site | None]] = set()
        self._reported: dict[str, str] = {}
        self._open: dict[str, str] = {}
        self._new: set[str] = set()
        self.findings: list[Finding] = []
        self._early: tuple[StepRecord, ...] = ()
        self._last: StepRecord | None = None

    def begin_step(self) -> None:
        """Forget the findings of the step before."""
        self._seen.clear()
        self.findings = []

    def look(
        self, history: Sequence[StepRecord], record: StepRecord, facts: Mapping[str, bool]
    ) -> bool:
        """Ask every detector; return whether something new must be captured."""
        if len(self._early) < EARLY and history and history[-1] is not self._last:
            self._last = history[-1]
            self._early = (*self._early, self._last)
        window = Window(
            steps=(*history, record),
            facts=facts,
            known_bad=self._known_bad,
            early=self._early,
        )
        captures = False
        for detector in self._detectors:
            with guarded(f"detector {type(detector).__name__}", self._faults):
                for finding in detector.check(window):
                    key = (finding.detector, finding.site)
                    if key in self._seen:
                        continue
                    self._seen.add(key)
                    self.findings.append(finding)
                    captures |= finding.level == "capture"
        return captures

    def verdict(self, record: StepRecord) -> tuple[str, Finding]:
        """Return the kind of the incident and the finding that stands for it.

        The first bad stage in the order output, loss, gradient, buffer, parameter decides.
        """
        capturing = [finding for finding in self.findings if finding.level == "capture"]
        nonfinite = [finding for finding in capturing if finding.kind in FAMILIES]
        if nonfinite:
            chosen = min(nonfinite, key=stage)
            return kind_of(nonfinite, record), chosen
        return capturing[0].kind, capturing[0]

    def repeats(self, kind: str, site: Site | None) -> str | None:
        """Return why this is no incident of its own, or None and remember it.

        One failure makes one incident: steps that stay bad without a healthy one in between
        follow from it, and a fingerprint (kind and site; a run has one code version) is written
        once per run.
        """
        family = FAMILIES.get(kind, kind)
        for opened in (family, "nonfinite"):
            if opened in self._open:
                return f"follows from incident {self._open[opened]}"
        seen = self._reported.get(fingerprint(kind, site))
        return None if seen is None else f"same fingerprint as incident {seen}"

    def report(self, kind: str, site: Site | None, incident: str) -> None:
        """Remember that an incident was made."""
        self._reported[fingerprint(kind, site)] = incident
        self._open[FAMILIES.get(kind, kind)] = incident
        self._new.add(FAMILIES.get(kind, kind))

    def end_step(self, record: StepRecord) -> bool:
        """Carry on or close what is open; return whether the step was bad."""
        kinds = {FAMILIES.get(f.kind, f.kind) for f in self.findings if f.level == "capture"}
        if "nonfinite" in self._open and self._stays_bad(record):
            kinds.add("nonfinite")
        new, self._new = self._new, set()
        for family in set(self._open) - kinds - new:
            del self._open[family]
        return bool(kinds)

    def bad_gradient(self, record: StepRecord) -> bool:
        """Is a gradient of this step not finite, whatever a scaler makes of it?"""
        return any(site.kind == "param_grad" for site in self._bad_sites(record))

    def _stays_bad(self, record: StepRecord) -> bool:
        """Does a value that no mask explains stay bad: a NaN anywhere, or an infinite loss?"""
        return any(
            site.kind == "loss" or record.stats_SK[row, Stat.NAN] > 0
            for row, site in enumerate(record.sites)
            if site in self._bad_sites(record)
        )

    def _bad_sites(self, record: StepRecord) -> set[Site]:
        bad_S = record.stats_SK[:, Stat.NAN] + record.stats_SK[:, Stat.INF] > 0
        if not bad_S.any():
            return set()
        return {record.sites[row] for row in np.flatnonzero(bad_S)} - self._known_bad


def fingerprint(kind: str, site: Site | None) -> str:
    """Join kind and site, without the number of the call."""
    where = "" if site is None else f"{site.module}:{site.kind}:{site.leaf}"
    return f"{kind}|{where}"
