"""A verdict as the one row that the catalog keeps of it."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flightrec.catalog.rows import partition, table_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

    from flightrec.types import Evidence, Verdict


def verdict_row(
    verdict: Verdict, manifest: Mapping[str, Any], command: str, device: str
) -> pa.Table:
    """Return the row of table `verdicts`; `manifest` is that of the incident, times are UTC."""
    day, run = partition(manifest)
    row: dict[str, Any] = {field.name: getattr(verdict, field.name) for field in fields(verdict)}
    source = row.pop("source")
    row |= {
        "judged": datetime.now(UTC).replace(tzinfo=None),
        "command": command,
        "device": device,
        "file": source.file if source else None,
        "line": source.line if source else None,
        "code": source.code if source else None,
        "index": None if verdict.index is None else list(verdict.index),
        "evidence": json.dumps([_evidence(item) for item in verdict.evidence]),
        "run": run,
        "date": day,
    }
    return table_of("verdicts", [row])


def _evidence(item: Evidence) -> dict[str, Any]:
    """Return one piece of evidence; a number that is not finite becomes its name."""
    value = item.value
    if isinstance(value, float) and not math.isfinite(value):
        value = str(value)
    return {"kind": item.kind, "text": item.text, "value": value}
