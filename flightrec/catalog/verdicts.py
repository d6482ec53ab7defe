"""A verdict as JSON, and as the one row that the catalog keeps of it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flightrec.catalog.rows import partition, table_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

    from flightrec.types import Verdict

VERDICT_KEYS = (
    "incident_id", "status", "fidelity", "gradients", "max_ulp",
    "kind", "phase", "step", "noticed_step",
    "rank", "module", "module_type", "call", "root_call", "op", "backward_of",
    "source", "sample", "index",
    "confirmed", "evidence", "first_divergence", "forward_passes", "seconds",
)  # fmt: skip
"""Keys of a verdict in the order in which a person reads them."""


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as the JSON object of DESIGN section 8, numbers tagged where needed."""
    plain: dict[str, Any] = {name: getattr(verdict, name) for name in VERDICT_KEYS}
    plain["source"] = asdict(verdict.source) if verdict.source else None
    plain["index"] = list(verdict.index) if verdict.index is not None else None
    plain["evidence"] = [
        {"kind": item.kind, "text": item.text, "value": finite(item.value)}
        for item in verdict.evidence
    ]
    return plain


def verdict_row(
    verdict: Verdict, manifest: Mapping[str, Any], command: str, device: str
) -> pa.Table:
    """Return a verdict as the one row that the table `verdicts` gets; times in UTC."""
    day, run = partition(manifest)
    plain = verdict_json(verdict)
    source = plain.pop("source") or {}
    row = plain | {
        "judged": datetime.now(UTC).replace(tzinfo=None),
        "command": command,
        "device": device,
        "file": source.get("file"),
        "line": source.get("line"),
        "code": source.get("code"),
        "evidence": json.dumps(plain["evidence"]),
        "run": run,
        "date": day,
    }
    return table_of("verdicts", [row])


def finite(value: Any) -> Any:
    """Return a number as JSON takes it: `"nan"`, `"inf"` and `"-inf"` become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
