"""An incident as files that other programs read: safetensors and JSON.

The container is written here: 8 bytes of length, a JSON header, the bytes. Reading tensors back
out of it needs the package `safetensors`; writing them does not.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from flightrec.catalog.segments import steps_of_tensors
from flightrec.errors import StoreError, UsageError
from flightrec.incident.layout import DTYPES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from flightrec.incident.reader import Incident
    from flightrec.types import TensorRef

CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
"""torch's name of an element type -> that of safetensors."""

WEIGHTS = frozenset({"param", "buffer"})
"""Roles that go into weights.safetensors, unless they belong to a step."""

MANIFEST_FILE = "incident.json"


def export_incident(incident: Incident, folder: Path) -> list[Path]:
    """Write an incident into `folder`, and return the files in the order of this list.

    - `weights.safetensors`: parameters and buffers under their names
    - `step.safetensors`: the failing step's batch, arguments, random state, outputs, gradients,
      as `<role>/<name>`
    - `earlier.safetensors`: the same of the healthy steps before it, as `<step>/<role>/<name>`
    - `incident.json`: the manifest, with `exported` (tensor index, file, key) and
      `not_exported` (tensor index, why)

    Keys are the names in the manifest, with `#index` where several tensors have the same. Files
    without tensors are not written.

    Raises `UsageError` where an export lies in `folder` already, `StoreError` where the machine
    refuses, and `CorruptIncidentError`.
    """
    if (folder / MANIFEST_FILE).exists():
        raise UsageError(f"{folder} holds an exported incident already; choose another folder")
    names, left_out = _sorted_out(incident)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written, exported = [], []
        for file_name, by_index in names.items():
            if by_index:
                keys = _keys(by_index)
                _write(incident, keys, folder / file_name)
                written.append(folder / file_name)
                exported += [
                    {"tensor": i, "file": file_name, "key": key} for key, i in keys.items()
                ]
        document = incident.manifest | {"exported": exported, "not_exported": left_out}
        with _private(folder / MANIFEST_FILE) as file:
            file.write(json.dumps(document, indent=1).encode("ascii"))
    except OSError as fault:
        if isinstance(fault, StoreError):
            raise
        raise StoreError(f"cannot write to {folder}: {fault.strerror or fault}") from fault
    return [*written, folder / MANIFEST_FILE]


def _sorted_out(
    incident: Incident,
) -> tuple[dict[str, dict[int, str]], list[dict[str, Any]]]:
    """Return the tensors of each file, index -> name, and what cannot be exported."""
    steps = steps_of_tensors(incident.manifest)
    failing = incident.manifest["segment"]["step"]
    names: dict[str, dict[int, str]] = {
        "weights.safetensors": {},
        "step.safetensors": {},
        "earlier.safetensors": {},
    }
    left_out = []
    for index, ref in enumerate(incident.tensors):
        why = _not_exportable(ref)
        if why:
            left_out.append({"tensor": index, "why": why})
        elif index not in steps and ref.role in WEIGHTS:
            names["weights.safetensors"][index] = ref.name
        elif steps.get(index, failing) == failing:
            names["step.safetensors"][index] = f"{ref.role}/{ref.name}"
        else:
            names["earlier.safetensors"][index] = f"{steps[index]}/{ref.role}/{ref.name}"
    return names, left_out


def _not_exportable(ref: TensorRef) -> str | None:
    if ref.dtype not in CODES:
        return f"safetensors has no {ref.dtype}"
    if ref.storage < 0 and 0 not in ref.size:
        return f"it had no data (device {ref.device})"
    return None


def _keys(names: Mapping[int, str]) -> dict[str, int]:
    """Return a key per tensor, unique and never the one that safetensors keeps for itself."""
    count = Counter(names.values())
    keys: dict[str, int] = {}
    for index, name in names.items():
        taken = count[name] > 1 or name in {"", "__metadata__"} or name in keys
        keys[f"{name}#{index}" if taken else name] = index
    return keys


def _write(incident: Incident, keys: Mapping[str, int], path: Path) -> None:
    """Write one container, a tensor at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "incident": incident.id}}
    # largest elements first: then every tensor begins at a multiple of its element's size
    ordered = sorted(keys, key=lambda key: -_itemsize(incident.tensors[keys[key]]))
    end = 0
    for key in ordered:
        ref = incident.tensors[keys[key]]
        start, end = end, end + int(np.prod(ref.size, dtype=np.int64)) * _itemsize(ref)
        header[key] = {
            "dtype": CODES[ref.dtype],
            "shape": list(ref.size),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    with _private(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for key in ordered:
            file.write(_contiguous(incident, incident.tensors[keys[key]]).tobytes())


def _itemsize(ref: TensorRef) -> int:
    return DTYPES[ref.dtype].itemsize


def _contiguous(incident: Incident, ref: TensorRef) -> NDArray[Any]:
    """Return the elements of a tensor as raw values in row-major order."""
    if 0 in ref.size:
        return np.empty(0, np.uint8)
    size = _itemsize(ref)
    raw = incident.storage(ref.storage)
    elements = raw[: len(raw) // size * size].view(f"V{size}")[ref.offset :]
    strides = tuple(size * step for step in ref.stride)
    return np.lib.stride_tricks.as_strided(elements, ref.size, strides, writeable=False)


def _private(path: Path) -> Any:
    """Open a new file for writing that only this user can read."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
