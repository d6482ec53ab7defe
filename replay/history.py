"""What is known of healthy steps from the run itself: statistics recorded at their outputs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flightrec.types import Stat
from replay.oplog import Flags
from replay.symptom import Look

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from flightrec.types import Site
    from replay.episode import RecordedCall
    from replay.symptom import Key

ALIKE = 1e-3
"""Relative difference of a magnitude up to which a replay repeats what was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The recorded statistics of one step."""

    step: int
    values: Mapping[Site, Flags] = field(default_factory=dict)
    moved: bool = True
    """Were weights updated between this step and the failing one?"""

    def look(self, calls: Sequence[RecordedCall], roots: Collection[str]) -> Look:
        """Return outputs and buffers under the keys that a replay of `calls` has.

        Outputs of all modules are known as inner ones too.
        """
        outputs: dict[Key, Flags] = {}
        inner: dict[Key, Flags] = {
            (site.call, f"{site.module}:{site.leaf}"): flags
            for site, flags in self.values.items()
            if site.kind == "output"
        }
        turns: Counter[str] = Counter()
        for position, call in enumerate(calls):
            turn = turns[call.public_name]
            turns[call.public_name] += 1
            for site, flags in self.values.items():
                if site.kind == "output" and (site.module, site.call) == (call.public_name, turn):
                    outputs[position, site.leaf] = flags
        buffers = {
            (0, f"{root}:{name}"): flags
            for site, flags in self.values.items()
            if site.kind == "buffer"
            for root, name in [_split(f"{site.module}.{site.leaf}".lstrip("."), roots)]
        }
        return Look(values={"output": outputs, "buffer": buffers, "inner": inner})


def remembered(
    sites: Sequence[Site], stats_TSK: NDArray[np.float64], steps: Sequence[Mapping[str, Any]]
) -> tuple[Remembered, ...]:
    """Read the statistics of the ring; `steps` are its rows in the manifest, oldest first.

    The last step, the failing one, is left out.
    """
    found = []
    for position, row in enumerate(steps[:-1]):
        values = {}
        for site, stats_K in zip(sites, stats_TSK[position], strict=True):
            flags = _flags(stats_K)
            if flags is not None:
                values[site] = flags
        moved = any(later.get("updated", True) for later in steps[position:-1])
        found.append(Remembered(step=row["step"], values=values, moved=moved))
    return tuple(found)


def contradicts(recorded: Look, replayed: Look, *, moved: bool) -> bool:
    """Did a healthy step come out otherwise when it was replayed through the failing weights?

    Where weights were updated in between only a bad or zeroed value counts, else any other
    magnitude, since the weights then have been changed by something else.
    """
    if replayed.exception is not None:
        return True
    for where in ("output", "buffer", "inner"):
        for key, before in recorded.get(where).items():
            now = replayed.get(where).get(key)
            if now is None or now.numel != before.numel:
                if not moved:
                    return True
            elif (
                not now.bad <= before.bad
                or (now.zero() and not before.zero())
                or (not moved and not now.bad and not _alike(now.absmax, before.absmax))
            ):
                return True
    return False


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= ALIKE * max(one, other)


def _flags(stats_K: NDArray[np.float64]) -> Flags | None:
    """Turn a row of statistics into flags, None where nothing was measured."""
    nan, infinite, absmax = (float(stats_K[at]) for at in (Stat.NAN, Stat.INF, Stat.ABSMAX))
    if math.isnan(nan) and math.isnan(absmax):
        return None
    return Flags(
        nan=nan > 0,
        positive=not nan > 0 and (stats_K[Stat.MAX] == math.inf or infinite > 0),
        negative=not nan > 0 and (stats_K[Stat.MIN] == -math.inf or infinite > 0),
        absmax=absmax,
        numel=int(stats_K[Stat.NUMEL]) if stats_K[Stat.NUMEL] > 0 else 0,
    )


def _split(name: str, roots: Collection[str]) -> tuple[str, str]:
    """Part a public name into the key of its root and the name inside it."""
    for root in roots:
        if root and name.startswith(f"{root}."):
            return root, name[len(root) + 1 :]
    return "", name
