"""One incident as rows of the catalog's tables."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from flightrec.catalog.schema import tables
from flightrec.catalog.segments import steps_of_tensors
from flightrec.incident.layout import DTYPES
from flightrec.types import Site, Stat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

# Shape letters: T = steps of the ring, S = sites in execution order, K = statistics.

Row = dict[str, Any]

LARGEST = 2**63 - 1
"""A tensor without data may claim any size; a column holds 64 bits."""

COUNTS = {"nan_count": Stat.NAN, "inf_count": Stat.INF, "numel": Stat.NUMEL}
MEASURES = {
    "zero_fraction": Stat.ZERO_FRACTION,
    "min": Stat.MIN,
    "max": Stat.MAX,
    "absmax": Stat.ABSMAX,
    "mean": Stat.MEAN,
    "std": Stat.STD,
    "l2": Stat.L2,
}


class Recorded(Protocol):
    """What the catalog needs of an incident; `flightrec.incident.reader.Incident` has it."""

    @property
    def id(self) -> str:
        """The incident."""

    @property
    def path(self) -> Path:
        """Its file."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Everything but the bytes; see schemas/incident.schema.json."""

    def stats(self) -> tuple[Sequence[Site], NDArray[np.float64]]:
        """Return the sites and their statistics, shape (T, S, K)."""


def rows_of(incident: Recorded, path: str) -> dict[str, pa.Table]:
    """Return the incident's rows per table; tables without rows are left out.

    `path` is where the incident lies, relative to the store.
    """
    manifest = incident.manifest
    key = partition(manifest)
    common = {"incident_id": incident.id, "run": key[1], "date": key[0]}
    found = {
        "steps": table_of("steps", (common | row for row in _steps(manifest))),
        "stats": _stats(incident, common),
        "findings": table_of("findings", (common | row for row in _findings(manifest))),
        "tensors": table_of("tensors", (common | row for row in _tensors(manifest))),
        "environment": table_of("environment", (common | row for row in _environment(manifest))),
        "incidents": table_of("incidents", [_incident(incident, path)]),
    }
    return {name: table for name, table in found.items() if table.num_rows}


def partition(manifest: Mapping[str, Any]) -> tuple[date, str]:
    """Return the day (UTC) and the run of an incident, which name its folder."""
    return _time(manifest["created"]).date(), _text(manifest["run"]["id"])


def number(node: Any) -> float | None:
    """Read a number of a manifest, in which non-finite ones are tagged."""
    if isinstance(node, dict):
        return float(node["v"])
    return None if node is None else float(node)


def table_of(name: str, rows: Iterator[Row] | list[Row]) -> pa.Table:
    """Return rows as Arrow, in the columns of catalog.sql; missing ones are NULL."""
    cleaned = [{key: _clean(value) for key, value in row.items()} for row in rows]
    return pa.Table.from_pylist(cleaned, schema=tables()[name].arrow)


def _clean(value: Any) -> Any:
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    """Drop lone surrogates, which JSON can carry and Parquet cannot."""
    return value.encode("utf-8", "replace").decode("utf-8")


def _time(text: str) -> datetime:
    """Read an ISO time as naive UTC, which is what the catalog holds."""
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _site(text: str | None) -> Row:
    if text is None:
        return {"site": None, "module": None, "site_kind": None, "leaf": None, "call": None}
    site = Site.parse(text)
    return {
        "site": text,
        "module": site.module,
        "site_kind": site.kind,
        "leaf": site.leaf,
        "call": site.call,
    }


def _incident(incident: Recorded, path: str) -> Row:
    manifest = incident.manifest
    day, run = partition(manifest)
    step = manifest["steps"][-1] if manifest["steps"] else {}
    exception = manifest["segment"].get("exception") or {}
    code = manifest["code"] or {}
    return {
        "id": incident.id,
        "created": _time(manifest["created"]),
        "kind": manifest["kind"],
        "step": manifest["step"],
        **_site(manifest["site"]),
        "reason": manifest["reason"],
        "detector": manifest["detector"],
        "fingerprint": manifest["fingerprint"],
        "loss": number(step.get("loss")),
        "grad_norm": number(step.get("grad_norm")),
        "lr": number(step.get("lr")),
        "exception_type": exception.get("type"),
        "exception_message": exception.get("message"),
        "run": run,
        "run_name": manifest["run"].get("name"),
        "rank": manifest["rank"],
        "world_size": manifest["world_size"],
        "commit": code.get("commit"),
        "dirty": code.get("dirty"),
        **_machine(manifest["environment"]),
        "flightrec": manifest["flightrec"],
        "format": manifest["format"],
        "bytes": incident.path.stat().st_size,
        "path": path,
        "date": day,
        "run_started": _time(manifest["run"]["started"]),
        "run_pid": manifest["run"]["pid"],
        "run_argv": " ".join(manifest["run"]["argv"]),
    }


def _machine(environment: Mapping[str, Any]) -> Row:
    known = dict(flatten(environment))
    return {
        "machine": _as_text(known.get("machine")),
        "platform": _as_text(known.get("platform")),
        "device": _as_text(known.get("devices.0.name", "cpu")),
        "python": _as_text(known.get("python")),
        "torch": _as_text(known.get("torch")),
    }


def _steps(manifest: Mapping[str, Any]) -> Iterator[Row]:
    for step in manifest["steps"]:
        times = step.get("times") or {}
        yield {
            "step": step["step"],
            "loss": number(step.get("loss")),
            "grad_norm": number(step.get("grad_norm")),
            "lr": number(step.get("lr")),
            "updated": step.get("updated"),
            "seconds": number(step.get("seconds")),
            "scalars": [
                (_text(name), number(value)) for name, value in (step.get("scalars") or {}).items()
            ],
            **{
                f"{part}_seconds": number(times.get(part))
                for part in ("data", "forward", "backward", "optimizer", "recorder")
            },
        }


def _stats(incident: Recorded, common: Row) -> pa.Table:
    """Return one row per step and site; NaN in the matrix means not measured, so NULL."""
    sites, stats_TSK = incident.stats()
    columns_K = stats_TSK.shape[2] if stats_TSK.ndim == 3 else 0
    steps = [step["step"] for step in incident.manifest["steps"]][: len(stats_TSK)]
    measured = ~np.isnan(stats_TSK[: len(steps)]).all(axis=2)
    at_T, at_S = np.nonzero(measured)
    names = [_site(str(site)) for site in sites]
    columns: dict[str, Any] = {
        key: [names[s][key] for s in at_S]
        for key in ("site", "module", "site_kind", "leaf", "call")
    }
    columns["step"] = [steps[t] for t in at_T]
    columns["ordinal"] = at_S
    for name, stat in (COUNTS | MEASURES).items():
        values = stats_TSK[at_T, at_S, stat] if stat < columns_K else np.full(len(at_T), np.nan)
        columns[name] = pa.array(values, mask=np.isnan(values))
    for name, value in common.items():
        columns[name] = [value] * len(at_T)
    schema = tables()["stats"].arrow
    arrays = [
        columns[field.name].cast(field.type)
        if isinstance(columns[field.name], pa.Array)
        else pa.array(columns[field.name], type=field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _findings(manifest: Mapping[str, Any]) -> Iterator[Row]:
    for ordinal, finding in enumerate(manifest["findings"]):
        yield {
            "ordinal": ordinal,
            **{key: finding[key] for key in ("detector", "kind", "level", "step", "text")},
            **_site(finding["site"]),
            "value": number(finding["value"]),
            "threshold": number(finding["limit"]),
        }


def _tensors(manifest: Mapping[str, Any]) -> Iterator[Row]:
    storages = manifest["storages"]
    steps = steps_of_tensors(manifest)
    for ordinal, tensor in enumerate(manifest["tensors"]):
        storage = tensor["storage"]
        yield {
            "ordinal": ordinal,
            "name": tensor["name"],
            "role": tensor["role"],
            "step": steps.get(ordinal),
            "shape": list(tensor["size"]),
            "dtype": tensor["dtype"],
            "bytes": min(math.prod(tensor["size"]) * DTYPES[tensor["dtype"]].itemsize, LARGEST),
            "hash": storages[storage]["hash"] if storage >= 0 else None,
            "device": tensor["device"],
            "requires_grad": tensor["requires_grad"],
            "reliable": tensor["reliable"],
        }


def _environment(manifest: Mapping[str, Any]) -> Iterator[Row]:
    for key, value in flatten(manifest["environment"]):
        yield {"key": key, "value": _as_text(value)}


def flatten(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested entries under dotted names, `devices.0.name`; lists of plain values stay."""
    for key, value in node.items():
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield from flatten({str(n): item for n, item in enumerate(value)}, f"{prefix}{key}.")
        elif isinstance(value, dict) and "$" not in value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
