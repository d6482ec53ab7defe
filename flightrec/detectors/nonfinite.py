"""Does anything that must be finite hold NaN or infinity in the newest step?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flightrec.detectors._history import places, row_of, survived
from flightrec.errors import UsageError
from flightrec.types import Finding, Stat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flightrec.types import Site, StepRecord, Window

# Shape letters: S = sites in execution order, K = statistics (see types.Stat).

STAGES = ("output", "loss", "param_grad", "buffer", "param")
"""Kinds of site in the order in which a bad one decides what the incident is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """Report sites whose newest row counts at least `limit` elements that are not finite.

    Gradients count only where an optimizer uses them, so a step that a loss scaler skips stays
    silent. Parameters and buffers count when they go bad, not while they stay so. Outputs may
    hold what they held in earlier steps that went well, and -inf alone is a mask in a step that
    goes well (masked logits).
    """

    kinds: tuple[str, ...] = STAGES
    """Kinds of site that must be finite; masks inside a module need not be."""

    limit: int = 1
    """Elements that must be NaN or infinite before a site is reported."""

    precedence: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """Refuse a limit that would report healthy tensors, and kinds that nothing can judge."""
        if self.limit < 1:
            raise UsageError(f"nonfinite.limit must be at least 1, got {self.limit!r}")
        for kind in self.kinds:
            if kind not in STAGES:
                raise UsageError(f"nonfinite.kinds knows {', '.join(STAGES)}; got {kind!r}")

    def check(self, window: Window) -> Iterator[Finding]:
        """Yield findings in execution order, so the first is the earliest cause."""
        newest = window.steps[-1]
        counts_S2 = newest.stats_SK[:, (Stat.NAN, Stat.INF)]
        if not (counts_S2 > 0).any():
            return
        bad_S = np.nansum(counts_S2, axis=1)
        for row in np.flatnonzero(bad_S >= self.limit):
            site = newest.sites[row]
            if site.kind in self.kinds and not self._expected(window, int(row), site):
                yield self._finding(newest, int(row), site, int(bad_S[row]))

    def _expected(self, window: Window, row: int, site: Site) -> bool:
        if site in window.known_bad:
            return True
        if site.kind == "param_grad":
            return not window.facts.get("update", False)
        if site.kind == "output":
            return _goes_well_with(window, row, site)
        return site.kind != "loss" and _stays_bad(window, row, site)

    def _finding(self, newest: StepRecord, row: int, site: Site, count: int) -> Finding:
        kind = "nan" if newest.stats_SK[row, Stat.NAN] > 0 else "inf"
        numel = newest.stats_SK[row, Stat.NUMEL]
        of = "" if np.isnan(numel) else f" of {int(numel)}"
        where = ".".join(part for part in (site.module, site.leaf) if part) or "the model"
        what = {"param_grad": "gradient", "param": "parameter"}.get(site.kind, site.kind)
        return Finding(
            detector="nonfinite",
            site=site,
            step=newest.step,
            value=float(count),
            limit=float(self.limit),
            kind=kind,
            text=f"{what} of {where}: {count}{of} elements are NaN or infinite",
        )


def _goes_well_with(window: Window, row: int, site: Site) -> bool:
    """Is this what the output held in steps that went well, or a mask in one that does?"""
    newest = window.steps[-1]
    stat = Stat.NAN if newest.stats_SK[row, Stat.NAN] > 0 else Stat.INF
    only_negative = stat is Stat.INF and newest.stats_SK[row, Stat.MAX] < np.inf
    if only_negative and survived(newest, updated=window.facts.get("update", False)):
        return True
    return any(
        record.stats_SK[place, stat] > 0 and survived(record, updated=record.updated)
        for record, place in places(window.steps[:-1], site)
    )


def _stays_bad(window: Window, row: int, site: Site) -> bool:
    """Was this parameter or buffer bad in the same way before, or born as a mask?"""
    newest = window.steps[-1]
    stat = Stat.NAN if newest.stats_SK[row, Stat.NAN] > 0 else Stat.INF
    before = next((one for one in reversed(window.steps[:-1]) if _has(one, site.kind)), None)
    if before is None:
        return False
    place = row_of(before, site, row)
    if place is None:
        return stat is Stat.INF and site.kind == "buffer"
    return bool(before.stats_SK[place, stat] > 0)


def _has(record: StepRecord, kind: str) -> bool:
    return any(site.kind == kind for site in record.sites)


def stage(finding: Finding) -> int:
    """Return the stage a finding belongs to: 0 output, 1 loss, 2 gradient, 3 buffer, 4 parameter.

    Findings without a site come last.
    """
    kind = finding.site.kind if finding.site is not None else None
    return STAGES.index(kind) if kind in STAGES else len(STAGES)


def kind_of(findings: Sequence[Finding], record: StepRecord) -> str:
    """Return `nan` where the first bad stage of `findings` holds a NaN in `record`, else `inf`."""
    first = min(stage(finding) for finding in findings)
    for finding in findings:
        if stage(finding) != first or finding.site is None:
            continue
        row = row_of(record, finding.site)
        counted = row is not None and record.stats_SK[row, Stat.NAN] > 0
        if counted or finding.kind == "nan":
            return "nan"
    return "inf"


Detector = NonFinite
