"""Did an update spoil the weights? Told from what was recorded, since no update is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flightrec.types import Evidence, Site, Stat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

# Shape letters: T = steps, S = sites, K = statistics (columns of types.Stat).


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoiled:
    """The step whose update made a parameter bad from gradients that were good."""

    step: int
    module: str
    """Owner of the first bad parameter, in the order of the model."""

    evidence: Evidence


def spoiled_by_update(
    manifest: Mapping[str, Any], sites: Sequence[Site], stats_TSK: NDArray[np.float64]
) -> Spoiled | None:
    """Return the update that a finding on a parameter, in an earlier step, speaks of.

    None where no parameter was found bad before the captured step, or where gradients of that
    step were bad too: then the backward is to blame and not the update.
    """
    found = [
        (finding["step"], Site.parse(finding["site"]))
        for finding in manifest["findings"]
        if finding["site"] is not None and finding["step"] < manifest["step"]
    ]
    bad = [(step, site) for step, site in found if site.kind == "param"]
    if not bad:
        return None
    step = min(step for step, _ in bad)
    at = next((t for t, kept in enumerate(manifest["steps"]) if kept["step"] == step), None)
    rows = [row for row, site in enumerate(sites) if site.kind == "param_grad"]
    if at is None or not rows:
        return None
    counts = stats_TSK[at, rows][:, (Stat.NAN, Stat.INF)]
    if not np.isfinite(counts).any() or np.nansum(counts) > 0:
        return None
    names = [f"{site.module}.{site.leaf}".lstrip(".") for _, site in bad]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Spoiled(
        step=step,
        module=bad[0][1].module,
        evidence=Evidence(
            kind="update",
            text=f"after the update of step {step} {names[0]}{more} held NaN or Inf, while every "
            "gradient of that step was finite; the update itself is not replayed",
            value=step,
        ),
    )
