"""Is every gradient exactly zero although there is something to learn?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from flightrec.types import Finding, Stat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flightrec.types import StepRecord, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroGrad:
    """Report a backward after which the gradient of every trainable parameter is exactly zero.

    Silent where the loss is exactly zero (a hinge loss with nothing left to learn, all labels
    ignored) and where it is not finite, which is another failure. Where the loss is not known
    and gradients were not zero before, that cannot be told apart: it is a note.
    """

    minimum: int = 1
    """Parameters with a gradient that there must be."""

    precedence: ClassVar[int] = 30

    def check(self, window: Window) -> Iterator[Finding]:
        """Yield at most one finding, without a site: no parameter is to blame alone."""
        newest = window.steps[-1]
        if not window.facts.get("backward", False) or not self._all_zero(newest):
            return
        if newest.loss is not None and (newest.loss == 0 or not math.isfinite(newest.loss)):
            return
        healthy = any(_norms(record) > 0 for record in window.steps[:-1])
        yield Finding(
            detector="zero_grad",
            site=None,
            step=newest.step,
            value=0.0,
            limit=0.0,
            kind="zeroed",
            level="note" if newest.loss is None and healthy else "capture",
            text="the gradient of every trainable parameter is exactly zero",
        )

    def _all_zero(self, record: StepRecord) -> bool:
        found = 0
        for row, site in enumerate(record.sites):
            if site.kind != "param_grad":
                continue
            if record.stats_SK[row, Stat.L2] != 0:
                return False
            found += 1
        return found >= max(self.minimum, 1)


def _norms(record: StepRecord) -> float:
    """Return the largest norm of a gradient in a step, 0 where there was none."""
    rows = [row for row, site in enumerate(record.sites) if site.kind == "param_grad"]
    return max((float(norm) for norm in record.stats_SK[rows, Stat.L2]), default=0.0)


Detector = ZeroGrad
