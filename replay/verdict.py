"""A verdict as the JSON object that other programs read; the order of fields is part of it."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from flightrec.types import Evidence, SourceLine

if TYPE_CHECKING:
    from flightrec.types import Json, Verdict

FIELDS = (
    "incident_id",
    "status",
    "fidelity",
    "gradients",
    "max_ulp",
    "kind",
    "phase",
    "step",
    "noticed_step",
    "rank",
    "module",
    "module_type",
    "call",
    "root_call",
    "op",
    "backward_of",
    "source",
    "sample",
    "index",
    "confirmed",
    "evidence",
    "first_divergence",
    "forward_passes",
    "seconds",
)
"""Names in the order in which they are written."""


def to_json(verdict: Verdict) -> dict[str, Json]:
    """Return the verdict as plain JSON; a number that is not finite becomes its name.

    `json.dumps` of it is valid JSON everywhere: NaN is `"nan"`, infinity `"inf"` or `"-inf"`.
    """
    return {name: _plain(getattr(verdict, name)) for name in FIELDS}


def exit_code(verdict: Verdict, *, searched: bool = False) -> int:
    """Return 0 where the failure was reproduced, 3 where this cannot be told, else 1.

    After a search (`bisect`) it takes a culprit to be 0: a phase at least.
    """
    if searched and verdict.status == "reproduced" and verdict.phase is None:
        return 1
    return {"reproduced": 0, "unsupported": 3}.get(verdict.status, 1)


def _plain(value: Any) -> Json:
    if isinstance(value, (Evidence, SourceLine)):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a verdict holds plain values, got {type(value).__name__}")
