"""Is the gradient far larger than at the start of the window and of the run?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flightrec.detectors._history import alike, upper_median
from flightrec.detectors._outlier import outlier
from flightrec.errors import UsageError
from flightrec.types import Finding, Stat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flightrec.types import StepRecord, Window

FIRST = 4
"""Steps at the start of the window, and of the run, whose median norm is compared with."""

REACH = 64
"""Earlier steps that are looked at: gradients that take longer to grow a hundredfold grow with
what is learned (critics, value functions)."""

SUSTAINED = 3
"""Steps in a row before the newest that must have grown too, unless it is a jump."""

GROWN = 0.1
"""Share of `ratio` that those steps must have reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodingGrad:
    """Report a finite gradient norm above `ratio` times the first ones, of window and of run.

    It must also be the largest of the last 64 steps, by growth or by a jump: the steps before
    it had grown already, or it lies beyond the tail of the recent norms and `margin` times
    above the largest. A hard sample late in training is neither. Only steps that did the same
    work are compared.
    """

    ratio: float = 100.0
    """Times the median of the first four norms. Two decades: warm-up, gates that open from zero
    and loss scalers move norms by factors of 2 to 30."""

    margin: float = 10.0
    """Times the largest recent norm for a jump. Megatron-LM calls 10 times the largest norm of
    the first 100 steps unexpectedly large (`check_for_large_grads`)."""

    precedence: ClassVar[int] = 40

    def __post_init__(self) -> None:
        """Refuse limits that would report healthy gradients."""
        for name in ("ratio", "margin"):
            if not getattr(self, name) > 1:
                value = getattr(self, name)
                raise UsageError(f"exploding_grad.{name} must be above 1, got {value!r}")

    def check(self, window: Window) -> Iterator[Finding]:
        """Yield at most one finding, without a site: the whole gradient is meant."""
        newest = window.steps[-1]
        norm = newest.grad_norm
        if norm is None or not math.isfinite(norm) or not window.facts.get("backward", False):
            return
        earlier = window.steps[-1 - REACH : -1]
        if not norm > self.ratio * _first(_norms(earlier[: FIRST * 2])):
            return
        recent = _norms(alike(earlier, newest))
        limit = self.ratio * max(_first(recent), _first(_norms(window.early), missing=0.0))
        if not norm > max(limit, max(recent, default=math.inf)):
            return
        if not self._grew(recent, limit) and not self._jumped(recent, norm):
            return
        yield Finding(
            detector="exploding_grad",
            site=None,
            step=newest.step,
            value=norm,
            limit=limit,
            kind="exploding_grad",
            text=f"gradient norm {norm:.4g}, {norm / limit * self.ratio:.0f} times that of the"
            f" first steps{_largest(newest)}",
        )

    def _grew(self, recent: Sequence[float], limit: float) -> bool:
        return min(recent[-SUSTAINED:]) > GROWN * limit

    def _jumped(self, recent: Sequence[float], norm: float) -> bool:
        return norm > self.margin * max(recent) and outlier(recent, norm).beyond_tail()


def _norms(records: Sequence[StepRecord]) -> list[float]:
    norms = [record.grad_norm for record in records]
    return [norm for norm in norms if norm is not None and 0 < norm < math.inf]


def _first(norms: Sequence[float], missing: float = math.inf) -> float:
    """Return the median of the first norms; `missing` where there are not enough."""
    return upper_median(norms[:FIRST]) if len(norms) >= FIRST else missing


def _largest(record: StepRecord) -> str:
    rows = [row for row, site in enumerate(record.sites) if site.kind == "param_grad"]
    norms = record.stats_SK[rows, Stat.L2]
    if not np.isfinite(norms).any():
        return ""
    site = record.sites[rows[int(np.nanargmax(norms))]]
    return f"; largest at {'.'.join(part for part in (site.module, site.leaf) if part)}"


Detector = ExplodingGrad
