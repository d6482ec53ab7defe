"""How far beyond its recent past is a value, in a way that heavy tails do not fool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flightrec.detectors._history import upper_median

if TYPE_CHECKING:
    from collections.abc import Sequence

FEW = 32
"""With fewer earlier values the limits are stricter: the tail has hardly been seen."""

SPREAD = 3.0
"""A value counts when it lies this many times as far above the median as the largest earlier
one did, in logarithms. Where the logarithms have an exponential tail (a power law of whatever
exponent) the chance of that is 5e-4 after 32 values and 7e-5 after 64, drawn 200,000 times; for
log-normal values it is below 3e-5. Detectors ask for a ratio as well, which makes it smaller."""

SPREAD_OF_FEW = 4.5
"""The same with fewer than `FEW` values: 1e-2 after 8, 8e-4 after 16, 2e-4 after 24."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """One positive value against positive earlier ones, in natural logarithms."""

    rise: float
    """Above the median of the earlier values."""

    reach: float
    """The same of the largest earlier value; at least 0."""

    count: int
    """How many earlier values there were."""

    def beyond_tail(self) -> bool:
        """Is it farther out than the tail of the earlier values leads one to expect?"""
        spread = SPREAD_OF_FEW if self.count < FEW else SPREAD
        return self.rise > spread * self.reach

    def times_median(self) -> float:
        """How many times the median of the earlier values it is."""
        return math.exp(min(self.rise, 700.0))


def outlier(earlier: Sequence[float], value: float) -> Outlier:
    """Compare `value` with `earlier`; all must be positive and finite, and there must be one."""
    usual = math.log(upper_median(earlier))
    return Outlier(math.log(value) - usual, math.log(max(earlier)) - usual, len(earlier))
