#!/usr/bin/env python3
"""How incident-v1.h5 was made: python tests/golden/make_v1.py FOLDER

The committed file is never made again, also where this would give other bytes today: it stands
for the incidents that users have. tests/golden/test_golden.py compares values, by what is here.
"""

import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from flightrec.incident.layout import DTYPES  # noqa: E402 - needs the path above
from flightrec.incident.writer import write  # noqa: E402
from flightrec.rng import Generators  # noqa: E402
from flightrec.structure import describe  # noqa: E402
from flightrec.tree import Encoder, TensorTable, number, tensor_hash  # noqa: E402
from flightrec.types import Capture, Site, StorageData, TensorRef  # noqa: E402

ID = "01940000-0000-7000-8000-000000000001"
KEY = b"the key of the golden incidents"
SITES = (
    Site(module="0", kind="output"),
    Site(module="", kind="output", leaf="['a:b']", call=2),
    Site(module="", kind="loss"),
)
STATS_TSK = np.arange(60, dtype=np.float64).reshape(2, 3, 10)
STATS_TSK[1, 2, 3:6] = np.nan, np.inf, -0.0
LONG = np.arange(1_500_001, dtype=np.int32) // 1000
"""More than one chunk, with padding in the last."""


def raw_bytes(dtype: str) -> np.ndarray:
    """Return 16 elements of any dtype, as bytes."""
    size = 16 * DTYPES[dtype].itemsize
    pattern = np.arange(size) * 7 + sum(dtype.encode())
    return (pattern % (2 if dtype == "bool" else 251)).astype(np.uint8)


def batch() -> dict:
    """Return a batch with what batches have: views, types, containers, strange floats."""
    x = torch.arange(24, dtype=torch.float32).reshape(6, 4) / 8 - 1
    return {
        "x": x,
        "rows": [x[1], x[1:3], x.t()],
        "half": torch.tensor([1.5, -2.0, float("nan")], dtype=torch.bfloat16),
        "mask": torch.tensor([[True], [False]]),
        "ids": torch.tensor(7),
        "none of it": torch.zeros(0, 3),
        "plain": (1, None, "text", 2.5, float("-inf"), True, [b"bytes", {1, 2}]),
        3: slice(1, None, 2),
        "again": x,
    }


def model() -> nn.Module:
    """Return a small model of library modules with set weights."""
    made = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.GELU(), nn.Linear(3, 2))
    with torch.no_grad():
        for n, tensor in enumerate([*made.parameters(), *made.buffers()]):
            if tensor.is_floating_point():
                tensor.copy_(torch.linspace(0.1, 0.9, tensor.numel()).reshape(tensor.shape) + n / 8)
    return made.eval()


def segment(table: TensorTable) -> dict:
    """Return the failing segment with one call, one backward and an exception."""
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    generators = Generators({})
    rng = generators.encode(generators.read(), table)
    values = batch()
    output = model()(values["x"]).detach()
    gradient = torch.full((6, 2), 0.25)
    call = {
        "index": 0,
        "root": "",
        "module": "",
        "step": 41,
        "args": Encoder(table).encode((values["x"],), "args"),
        "kwargs": Encoder(table).encode({}, "kwargs"),
        "rng": rng,
        "state": {
            "buffers": {":1.running_mean": table.add(torch.ones(3), role="buffer", name="mean")},
            "attributes": {":1": {"momentum": 0.1, "limit": number(float("inf"))}},
        },
        "training": [],
        "grad_enabled": True,
        "inference_mode": False,
        "autocast": [{"device": "cpu", "dtype": "bfloat16", "enabled": False, "cache": True}],
        "outputs": [
            {
                "leaf": "",
                "dtype": "float32",
                "shape": [6, 2],
                "hash": tensor_hash(output),
                "tensor": table.add(output, role="output", name="output"),
                "changed": False,
                "requires_grad": True,
            }
        ],
        "raised": False,
    }
    return {
        "step": 41,
        "first_step": 41,
        "rng": rng,
        "batch": Encoder(table).encode(values, "batch"),
        "calls": [call],
        "backwards": [
            {
                "number": 0,
                "after_call": 1,
                "create_graph": False,
                "gradients": [
                    {"call": 0, "leaf": "", "tensor": table.add(gradient, role="grad_output")}
                ],
            }
        ],
        "loss": {"tensor": table.add(torch.tensor(float("nan")), name="loss"), "after_call": 1},
        "gradients": [{"parameter": ":0.weight", "hash": "0" * 32, "tensor": None}],
        "gradients_unavailable": "made by hand",
        "grads_present": False,
        "exception": {
            "type": "ValueError",
            "message": "made by \u00e4 hand",
            "traceback": [{"file": "a.py", "line": 3, "function": "f", "code": "raise ValueError"}],
        },
    }


def manifest(table: TensorTable) -> dict:
    """Return all of a manifest, with no entry left at its default."""
    description = describe({"": model()}, table)
    step = {
        "step": 40,
        "loss": 0.5,
        "grad_norm": 1.25,
        "lr": 0.1,
        "updated": True,
        "seconds": 0.125,
        "times": {"forward": 0.0625},
        "scalars": {"accuracy": 0.75},
    }
    bad = {**step, "step": 41, "loss": number(float("nan")), "grad_norm": None, "updated": False}
    failing = segment(table)
    return {
        "format": 1,
        "id": ID,
        "created": "2025-01-01T00:00:01.000002+00:00",
        "flightrec": "0.1.0",
        "kind": "nan",
        "step": 41,
        "fingerprint": "nan:loss:0",
        "reason": "the loss is nan",
        "detector": "nonfinite",
        "site": str(SITES[2]),
        "rank": 1,
        "world_size": 2,
        "run": {
            "id": "20250101-golden",
            "name": "golden",
            "started": "2025-01-01T00:00:00+00:00",
            "pid": 4321,
            "argv": ["train.py", "--fast"],
        },
        "findings": [
            {
                "detector": "nonfinite",
                "site": str(SITES[2]),
                "step": 41,
                "value": number(float("nan")),
                "limit": 1,
                "kind": "nan",
                "level": "capture",
                "text": "the loss is nan",
            }
        ],
        "environment": {"python": "3.11.7", "torch": "2.13.0", "flags": {"allow_tf32": False}},
        "code": {
            "repository": None,
            "commit": "0123456789abcdef",
            "dirty": True,
            "diff": "-a\n+b\n",
            "diff_truncated": False,
        },
        "options": {"ring_steps": 8, "weights": "auto"},
        "detectors": [{"name": "nonfinite", "configuration": {"limit": 1}}],
        "model": {"roots": description.node, "sources": description.sources},
        "step_fn": {"name": "train:step", "source": "def step(model, batch): ..."},
        "optimizers": [
            {"name": "", "class": "torch.optim.sgd:SGD", "lr": [0.1], "parameters": [[":0.weight"]]}
        ],
        "segment": failing,
        "controls": [{**failing, "step": 40, "first_step": 40, "exception": None}],
        "steps": [step, bad],
        "not_captured": [{"what": "a generator", "why": "it cannot be read twice"}],
        "dropped": {"device_bytes": 3},
        "notes": ["made by hand"],
    }


def capture() -> Capture:
    """Return the golden capture: what a recorder keeps, then every dtype, then a long storage."""
    table = TensorTable()
    entries = manifest(table)
    table.freeze()
    storages, tensors = table.export()
    first = len(storages)
    dtypes = [*sorted(DTYPES), "int32"]
    extra = [*map(raw_bytes, dtypes[:-1]), LONG.view(np.uint8)]
    return Capture(
        id=ID,
        manifest=entries,
        storages=(
            *storages,
            *(StorageData(data=d, dtype=k) for d, k in zip(extra, dtypes, strict=True)),
        ),
        tensors=(
            *tensors,
            *(
                TensorRef(
                    storage=first + n,
                    dtype=dtype,
                    offset=0,
                    size=(size := len(data) // DTYPES[dtype].itemsize,),
                    stride=(1,),
                    object=10_000 + n,
                    name=f"raw {dtype} {size}",
                )
                for n, (data, dtype) in enumerate(zip(extra, dtypes, strict=True))
            ),
        ),
        sites=SITES,
        stats_TSK=STATS_TSK,
    )


if __name__ == "__main__":
    made = write(capture(), Path(sys.argv[1]), key=KEY)
    made.rename(made.with_name("incident-v1.h5"))
