"""Incidents made by hand, without files of their own."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from flightrec.types import Site, Stat

NAN = {"$": "float", "v": "nan"}


def manifest_of(id, *, run="run-a", created="2026-03-01T12:00:00+00:00", **changes):
    """The manifest of a small incident; keywords replace its entries."""
    manifest = {
        "format": 1,
        "id": id,
        "created": created,
        "flightrec": "0.1.0",
        "kind": "nan",
        "step": 7,
        "fingerprint": "f00d",
        "reason": "output of encoder.0 has 3 NaN",
        "detector": "nonfinite",
        "site": "encoder.0:output:['x']#1",
        "rank": 0,
        "world_size": 1,
        "run": {
            "id": run,
            "name": "night",
            "started": "2026-03-01T11:00:00+00:00",
            "pid": 4,
            "argv": ["train.py", "--lr", "1"],
        },
        "findings": [
            {
                "detector": "nonfinite",
                "site": "encoder.0:output:['x']#1",
                "step": 7,
                "value": 3.0,
                "limit": 1.0,
                "kind": "nan",
                "level": "capture",
                "text": "3 NaN",
            },
            {
                "detector": "loss",
                "site": None,
                "step": 7,
                "value": NAN,
                "limit": 0.0,
                "kind": "nan",
                "level": "note",
                "text": "",
            },
        ],
        "environment": {
            "python": "3.11.7",
            "torch": "2.13.0",
            "platform": "Linux x86_64",
            "machine": "node-3",
            "packages": {"numpy": "2.4.6"},
            "cpu": {"capability": "AVX2"},
            "devices": [],
            "flags": {"deterministic": False},
            "missing": None,
        },
        "code": {"commit": "abc123", "dirty": True},
        "steps": [
            {"step": 6, "loss": 0.5, "grad_norm": 1.0, "lr": 0.1, "updated": True, "seconds": 0.2},
            {
                "step": 7,
                "loss": NAN,
                "grad_norm": None,
                "lr": 0.1,
                "updated": False,
                "seconds": 0.3,
                "times": {"forward": 0.1},
                "scalars": {"accuracy": 0.25, "bad": NAN},
            },
        ],
        "segment": {"step": 7, "batch": {"$": "tensor", "i": 1}, "exception": None},
        "controls": [],
        "model": {"roots": None, "sources": []},
        "storages": [{"bytes": 24, "hash": "cafe", "dtype": "float32"}],
        "tensors": [tensor(0, "float32", [2, 3], "weight"), tensor(-1, "bfloat16", [0], "empty")],
    }
    return manifest | changes


def tensor(storage, dtype, size, name):
    return {
        "storage": storage,
        "dtype": dtype,
        "offset": 0,
        "size": size,
        "stride": [1] * len(size),
        "object": 0,
        "requires_grad": True,
        "device": "cpu",
        "role": "param",
        "name": name,
        "reliable": True,
    }


@dataclass
class HandMade:
    """What the catalog needs of an incident."""

    id: str
    path: Path
    manifest: dict
    sites: tuple = ()
    stats_TSK: np.ndarray = field(default_factory=lambda: np.empty((0, 0, len(Stat))))

    def stats(self):
        return self.sites, self.stats_TSK


@pytest.fixture
def make(tmp_path):
    """Make an incident by id, with two sites of which one was not measured at step 6."""

    def made(id, **changes):
        path = tmp_path / f"{id}.h5"
        path.write_bytes(b"12345")
        stats_TSK = np.full((2, 2, len(Stat)), np.nan)
        stats_TSK[0, 0] = [0, 0, 0.5, -1, 1, 1, 0, 0.5, 2, 6]
        stats_TSK[1, 0] = [3, 0, 0.0, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, 6]
        stats_TSK[1, 1, Stat.ABSMAX] = np.inf
        sites = (
            Site(module="encoder.0", kind="output", leaf="['x']", call=1),
            Site(module="", kind="param_grad", leaf="weight"),
        )
        return HandMade(id, path, manifest_of(id, **changes), sites, stats_TSK)

    return made
