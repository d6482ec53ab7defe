"""What a set of paired times says: the median ratio, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

# Shape letters: N = pairs, R = resamplings.

RESAMPLINGS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A median of paired ratios with its 95% bootstrap interval."""

    median: float
    low: float
    high: float
    pairs: int


def ratio(times: Sequence[float], bases: Sequence[float]) -> Ratio:
    """Compare times with the base times of the same rounds.

    The interval is the percentile bootstrap over pairs, with a fixed seed. Raises `ValueError`
    where the two do not pair up.
    """
    if len(times) != len(bases) or not times:
        raise ValueError(f"{len(times)} times cannot be paired with {len(bases)} base times")
    ratios_N = np.asarray(times) / np.asarray(bases)
    generator = np.random.default_rng(0)
    drawn_RN = generator.choice(ratios_N, (RESAMPLINGS, len(ratios_N)))
    low, high = np.percentile(np.median(drawn_RN, axis=1), [2.5, 97.5])
    return Ratio(
        median=float(np.median(ratios_N)),
        low=float(low),
        high=float(high),
        pairs=len(ratios_N),
    )
