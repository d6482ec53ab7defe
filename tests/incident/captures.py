"""Captures made by hand, for tests of the file format."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from flightrec.incident.layout import new_id
from flightrec.types import Capture, StorageData, TensorRef

KEY = b"a key of the tests"

SEGMENT: dict[str, Any] = {
    "step": 3,
    "first_step": 3,
    "rng": None,
    "batch": None,
    "calls": [],
    "backwards": [],
    "loss": None,
    "gradients": [],
    "gradients_unavailable": None,
    "grads_present": False,
    "exception": None,
}

CALL: dict[str, Any] = {
    "index": 0,
    "root": "",
    "module": "",
    "step": 3,
    "args": {"$": "tuple", "items": []},
    "kwargs": {"$": "dict", "items": []},
    "rng": {"python": None},
    "state": {"buffers": {}, "attributes": {}},
    "training": ["", "encoder"],
    "grad_enabled": True,
    "inference_mode": False,
    "autocast": [],
    "outputs": [],
    "raised": False,
}

STEP: dict[str, Any] = {
    "step": 3,
    "loss": 1.5,
    "grad_norm": None,
    "lr": 0.1,
    "updated": True,
    "seconds": 0.25,
    "times": {"forward": 0.1},
    "scalars": {},
}


def manifest_of(incident_id: str, **changed: Any) -> dict[str, Any]:
    """Return a manifest as a recorder makes it, with some entries changed."""
    return {
        "format": 1,
        "id": incident_id,
        "created": "2026-01-02T03:04:05.000006+00:00",
        "flightrec": "0.1.0",
        "kind": "nan",
        "step": 3,
        "fingerprint": "nan@encoder",
        "reason": "loss is nan",
        "detector": "nonfinite",
        "site": "encoder:output:#0",
        "rank": 0,
        "world_size": 1,
        "run": {
            "id": "run-1",
            "name": "a run",
            "started": "2026-01-02T03:00:00+00:00",
            "pid": 1,
            "argv": ["train.py"],
        },
        "findings": [],
        "environment": {"python": "3.11"},
        "code": None,
        "options": {},
        "detectors": [{"name": "nonfinite", "configuration": {"limit": 1}}],
        "model": {"roots": None, "sources": []},
        "step_fn": None,
        "optimizers": [],
        "segment": SEGMENT,
        "controls": [],
        "steps": [],
        "not_captured": [],
        "dropped": {},
        "notes": [],
        **changed,
    }


def storage_of(array: np.ndarray, dtype: str | None = None) -> StorageData:
    """Return the bytes of an array."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return StorageData(data=data, dtype=dtype or str(array.dtype))


def ref_of(storage: int, array: np.ndarray, **changed: Any) -> TensorRef:
    """Return a tensor that is a whole array of its own."""
    strides = tuple(step // array.itemsize for step in array.strides)
    return TensorRef(
        **{
            "storage": storage,
            "dtype": str(array.dtype),
            "offset": 0,
            "size": array.shape,
            "stride": strides,
            "object": storage,
            "name": f"tensor{storage}",
            **changed,
        }
    )


def capture_of(*arrays: np.ndarray, **changed: Any) -> Capture:
    """Return a capture of arrays, each one tensor; `changed` are fields of Capture or manifest."""
    fields = {
        name: changed.pop(name)
        for name in ("storages", "tensors", "sites", "stats_TSK")
        if name in changed
    }
    incident_id = changed.pop("id", None) or new_id()
    return Capture(
        **{
            "id": incident_id,
            "manifest": manifest_of(incident_id, **changed),
            "storages": tuple(map(storage_of, arrays)),
            "tensors": tuple(itertools.starmap(ref_of, enumerate(arrays))),
            **fields,
        }
    )
