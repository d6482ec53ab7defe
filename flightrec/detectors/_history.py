"""Where a site was in earlier steps, and which earlier steps did the same work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flightrec.types import Stat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flightrec.types import Site, StepRecord


def row_of(record: StepRecord, site: Site, hint: int = -1) -> int | None:
    """Return the row of `site`, looked for first at `hint`, where it mostly is; None if absent."""
    sites = record.sites
    if 0 <= hint < len(sites) and sites[hint] == site:
        return hint
    try:
        return sites.index(site)
    except ValueError:
        return None


def places(records: Iterable[StepRecord], site: Site) -> list[tuple[StepRecord, int]]:
    """Return (record, row) of a site, oldest first.

    Where no record has exactly this call of the module, its other calls stand for it: a loop
    may call a module more often in one step than in those before.
    """
    same: list[tuple[StepRecord, int]] = []
    alike: list[tuple[StepRecord, int]] = []
    for record in records:
        for row, other in enumerate(record.sites):
            if other.kind != site.kind or other.module != site.module or other.leaf != site.leaf:
                continue
            (same if other.call == site.call else alike).append((record, row))
    return same or alike


def survived(record: StepRecord, *, updated: bool) -> bool:
    """Did training visibly go on: is the loss finite, and are the gradients that were used?

    Without a loss, finite gradients say so; without both nothing is known, which means no.
    """
    rows = [row for row, site in enumerate(record.sites) if site.kind == "param_grad"]
    counts = record.stats_SK[rows][:, (Stat.NAN, Stat.INF)]
    gradients_bad = bool((counts > 0).any())
    if record.loss is None:
        return bool(rows) and not gradients_bad
    return math.isfinite(record.loss) and not (gradients_bad and updated)


def alike(records: Sequence[StepRecord], newest: StepRecord) -> list[StepRecord]:
    """Return the steps that called the same modules and gave the same parameters gradients.

    Losses and gradients of a discriminator's step say nothing about a generator's.
    """
    wanted = _work(newest)
    return [record for record in records if _work(record) == wanted]


def _work(record: StepRecord) -> frozenset[tuple[str, str]]:
    return frozenset(
        (site.kind, site.module) for site in record.sites if site.kind in ("output", "param_grad")
    )


def absmax(record: StepRecord, row: int) -> float:
    """Return the largest magnitude of a row; NaN where it was not measured."""
    return float(record.stats_SK[row, Stat.ABSMAX])


def upper_median(values: Sequence[float]) -> float:
    """Return the median, the greater of the two middle values of an even number."""
    return sorted(values)[len(values) // 2]


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return float(np.median(values))
