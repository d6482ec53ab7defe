"""Captures made by hand: small, complete, and without a run behind them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from flightrec.incident.layout import new_id
from flightrec.types import Capture, Site, Stat, StorageData, TensorRef

NAN = {"$": "float", "v": "nan"}
FIRST = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

SITES = (
    Site(module="encoder.0", kind="output"),
    Site(module="", kind="loss"),
)


def make_capture(number: int = 0, *, run: str = "run-a", **changes: Any) -> Capture:
    """Return a capture of a NaN at step 7, in `encoder.0`; batch and one weight are kept.

    `number` moves it that many minutes on and becomes its batch. `changes` replace entries of
    its manifest.
    """
    incident_id = str(changes.get("id") or new_id())
    created = (FIRST + timedelta(minutes=number)).isoformat()
    weight = np.arange(6, dtype="<f4")
    batch = np.full(4, number, dtype="<f4")
    stats_TSK = np.full((2, len(SITES), len(Stat)), np.nan)
    stats_TSK[0, :, :] = [0, 0, 0.25, -1, 1, 1, 0, 0.5, 2, 4]
    stats_TSK[1, 0, Stat.NAN] = 3
    return Capture(
        id=incident_id,
        manifest=_manifest(incident_id, created, run) | changes,
        storages=tuple(
            StorageData(data=array.view(np.uint8), dtype="float32") for array in (weight, batch)
        ),
        tensors=(
            _tensor(0, (2, 3), role="param", name="encoder.0.weight"),
            _tensor(1, (2, 2), role="input", name="batch['x']"),
        ),
        sites=SITES,
        stats_TSK=stats_TSK,
    )


def _tensor(storage: int, size: tuple[int, int], *, role: str, name: str) -> TensorRef:
    return TensorRef(
        storage=storage,
        dtype="float32",
        offset=0,
        size=size,
        stride=(size[1], 1),
        object=storage,
        role=role,
        name=name,
    )


def _manifest(incident_id: str, created: str, run: str) -> dict[str, Any]:
    return {
        "format": 1,
        "id": incident_id,
        "created": created,
        "flightrec": "0.1.0",
        "kind": "nan",
        "step": 7,
        "fingerprint": "f00d",
        "reason": "output of encoder.0 has 3 NaN",
        "detector": "nonfinite",
        "site": str(SITES[0]),
        "rank": 0,
        "world_size": 1,
        "run": {
            "id": run,
            "name": "night",
            "started": FIRST.isoformat(),
            "pid": 4,
            "argv": ["train.py"],
        },
        "findings": [
            {
                "detector": "nonfinite",
                "site": str(SITES[0]),
                "step": 7,
                "value": 3.0,
                "limit": 1.0,
                "kind": "nan",
                "level": "capture",
                "text": "output of encoder.0 has 3 NaN",
            }
        ],
        "environment": {"python": "3.11.7", "torch": "2.13.0", "cpu": {"capability": "AVX2"}},
        "code": None,
        "options": {},
        "detectors": [{"name": "nonfinite", "configuration": {"limit": 1}}],
        "model": {"roots": None, "sources": []},
        "step_fn": None,
        "optimizers": [],
        "segment": _segment(7),
        "controls": [],
        "steps": [_step(6, 0.5), _step(7, NAN)],
        "sites": [str(site) for site in SITES],
        "not_captured": [{"what": "weights", "why": "weights='none'; replay needs --model"}],
        "dropped": {},
        "notes": [],
    }


def _segment(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "first_step": step,
        "rng": None,
        "batch": {"$": "tensor", "i": 1},
        "calls": [],
        "backwards": [],
        "loss": None,
        "gradients": [],
        "gradients_unavailable": None,
        "grads_present": False,
        "exception": None,
    }


def _step(step: int, loss: Any) -> dict[str, Any]:
    return {
        "step": step,
        "loss": loss,
        "grad_norm": None,
        "lr": 0.1,
        "updated": step < 7,
        "seconds": 0.2,
        "times": {"forward": 0.1},
        "scalars": {"accuracy": 0.25},
    }
