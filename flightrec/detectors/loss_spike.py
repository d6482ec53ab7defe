"""Did the loss jump far beyond what noise and decay of the recent losses explain?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from flightrec.detectors._history import alike, upper_median
from flightrec.detectors._outlier import FEW, outlier
from flightrec.errors import UsageError
from flightrec.types import Finding, Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flightrec.types import StepRecord, Window

QUIET = 1.5
"""A positive loss is quiet while no recent one is above this many times their median."""

QUIET_STEPS = 32
"""Recent losses needed before a loss can be called quiet."""

EARLY = 2.0
"""A jump of a loss that is not quiet must exceed this many times the first losses of the run: a
hard sample late in training may cost what every sample cost at the start."""

SIGNED_STEPS = 64
"""Losses of any sign needed before one can be judged: rewards may be rare at first."""

SIGNED_RISE = 30.0
"""A loss of any sign must rise by this many times its median absolute deviation."""

SIGNED_SPREAD = 3.0
"""And by the largest earlier deviation raised to this power, both in units of the median one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpike:
    """Report a finite loss that rises far above the recent ones.

    A quiet positive loss (within half above its median) is reported above `quiet_ratio` times
    the median; any other positive loss above `ratio` times, and only where it also exceeds what
    the run began with. Both must lie beyond the tail of the recent losses, whose decay counts
    as tail, and rise `margin` times as far as the largest recent one. Losses of any sign are
    judged by their deviations. Only steps that did the same work are compared.
    """

    ratio: float = 10.0
    """Times the median that a jump must reach. Megatron-LM calls 10 times the largest loss of
    the first 100 steps spiky (`SPIKY_LOSS_FACTOR`)."""

    few_ratio: float = 30.0
    """The same with fewer than 32 earlier losses."""

    quiet_ratio: float = 2.0
    """Times the median for a quiet loss. Lightning's SpikeDetection and llm-foundry's
    KillLossSpike both call twice the running mean a spike."""

    margin: float = 10.0
    """Times the largest recent rise over the median; noise of any symmetric kind stays below."""

    warmup: int = 5
    """Losses needed before anything is reported; the first of a healthy run may jump by 30."""

    precedence: ClassVar[int] = 20

    def __post_init__(self) -> None:
        """Refuse limits that would report healthy losses."""
        for name in ("ratio", "few_ratio", "quiet_ratio", "margin"):
            if not getattr(self, name) > 1:
                raise UsageError(f"loss_spike.{name} must be above 1, got {getattr(self, name)!r}")
        if self.warmup < 1:
            raise UsageError(f"loss_spike.warmup must be at least 1, got {self.warmup!r}")

    def check(self, window: Window) -> Iterator[Finding]:
        """Yield at most one finding, at the loss."""
        newest = window.steps[-1]
        loss = newest.loss
        if loss is None or not math.isfinite(loss):
            return
        earlier = window.steps[:-1]
        if not self._worth_a_look(_losses(_peers(earlier, newest)), loss):
            return
        recent = _losses(alike(earlier, newest))
        early = _losses(window.early)
        limit = self._limit(recent, early, loss) if len(recent) >= self.warmup else None
        if limit is None or not loss > limit:
            return
        yield Finding(
            detector="loss_spike",
            site=next((site for site in newest.sites if site.kind == "loss"), LOSS),
            step=newest.step,
            value=loss,
            limit=limit,
            kind="loss_spike",
            text=f"loss {loss:.4g}, median of the last {len(recent)}: {upper_median(recent):.4g}",
        )

    def _worth_a_look(self, losses: Sequence[float], loss: float) -> bool:
        """Answer most steps in microseconds: is it the largest, and twice the median?"""
        if not losses or loss <= max(losses):
            return False
        return min(losses) < 0 or loss > self.quiet_ratio * upper_median(losses)

    def _limit(self, recent: Sequence[float], early: Sequence[float], loss: float) -> float | None:
        """Return the limit that applies to `loss`, None where its rise can be noise."""
        start = EARLY * max(map(abs, early), default=0.0)
        if min(recent) < 0:
            return self._signed(recent, start)
        newest = recent[-QUIET_STEPS:]
        if self._is_quiet(newest) and self._stands_out(newest, loss):
            return self.quiet_ratio * upper_median(newest)
        positive = [value for value in recent if value > 0]
        if len(positive) < self.warmup or not self._stands_out(positive, loss):
            return None
        ratio = self.few_ratio if len(positive) < FEW else self.ratio
        return max(ratio * upper_median(positive), start)

    @staticmethod
    def _is_quiet(losses: Sequence[float]) -> bool:
        enough = len(losses) == QUIET_STEPS and min(losses) > 0
        return enough and max(losses) <= QUIET * upper_median(losses)

    def _stands_out(self, losses: Sequence[float], loss: float) -> bool:
        usual = upper_median(losses)
        far = loss - usual > self.margin * (max(losses) - usual)
        return far and outlier(losses, loss).beyond_tail()

    def _signed(self, recent: Sequence[float], start: float) -> float | None:
        usual = upper_median(recent)
        deviations = [abs(value - usual) for value in recent]
        unit = upper_median(deviations)
        if len(recent) < SIGNED_STEPS or unit == 0:
            return None
        largest = max(deviations) / unit
        rise = unit * max(SIGNED_RISE, self.margin * largest, math.pow(largest, SIGNED_SPREAD))
        return max(usual + rise, start)


LOSS = Site(module="", kind="loss")


def _peers(earlier: Sequence[StepRecord], newest: StepRecord) -> Sequence[StepRecord]:
    """Return the last steps that may have done the same work, told by how much was watched."""
    last = earlier[-QUIET_STEPS:]
    return [record for record in last if len(record.sites) == len(newest.sites)] or last


def _losses(records: Sequence[StepRecord]) -> list[float]:
    losses = [record.loss for record in records]
    return [loss for loss in losses if loss is not None and math.isfinite(loss)]


Detector = LossSpike
