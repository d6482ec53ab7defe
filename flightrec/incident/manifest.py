"""A manifest to JSON bytes and back, and what must hold of one beyond its schema."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from flightrec.errors import CorruptIncidentError
from flightrec.incident.layout import (
    DTYPES,
    MAX_BYTES,
    MAX_JSON_DEPTH,
    MAX_JSON_VALUES,
    MAX_MANIFEST_BYTES,
)
from flightrec.incident.schema import SCHEMA
from flightrec.incident.validate import compile_schema
from flightrec.types import Site, TensorRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_schema_problem = compile_schema(SCHEMA)


def to_json(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as ASCII JSON; raises `ValueError` for a bare NaN or infinity."""
    return json.dumps(manifest, allow_nan=False, separators=(",", ":")).encode("ascii")


def from_json(text: bytes) -> dict[str, Any]:
    """Parse a manifest within the limits of size, depth and number of values.

    Raises `CorruptIncidentError`; nothing is validated here but that it is JSON.
    """
    if len(text) > MAX_MANIFEST_BYTES:
        raise CorruptIncidentError(
            f"a manifest of {len(text)} bytes, the most are {MAX_MANIFEST_BYTES}"
        )
    values = text.count(b",") + text.count(b"[") + text.count(b"{")
    if values > MAX_JSON_VALUES:
        raise CorruptIncidentError(f"a manifest of {values} values, the most are {MAX_JSON_VALUES}")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise CorruptIncidentError(f"its manifest is not JSON: {problem}") from problem
    if not isinstance(manifest, dict):
        raise CorruptIncidentError("its manifest is not a JSON object")
    return manifest


def check(manifest: dict[str, Any], *, max_bytes: int = MAX_BYTES) -> None:
    """Raise `CorruptIncidentError` for anything that code which uses a manifest relies on.

    That is the schema; finite numbers; depth; sites and times that parse; tensors that stay
    inside their storages; tensor indices that exist; declared bytes of at most `max_bytes`.
    """
    problem = _schema_problem(manifest)
    if problem is not None:
        raise CorruptIncidentError(f"its manifest is wrong at {problem.lstrip('.')}")
    _check_texts(manifest)
    _check_storages(manifest["storages"], max_bytes)
    for n, tensor in enumerate(manifest["tensors"]):
        problem = _tensor_problem(tensor, manifest["storages"], max_bytes)
        if problem is not None:
            raise CorruptIncidentError(f"tensor {n} {problem}")
    indices = [*_tensor_indices(manifest), *_check_values(manifest)]
    if indices and max(indices) >= len(manifest["tensors"]):
        raise CorruptIncidentError(f"there is no tensor {max(indices)}")


def tensor_refs(manifest: Mapping[str, Any]) -> list[TensorRef]:
    """Return the tensors of a checked manifest."""
    return [
        TensorRef(**{**entry, "size": tuple(entry["size"]), "stride": tuple(entry["stride"])})
        for entry in manifest["tensors"]
    ]


def tensor_entry(ref: TensorRef) -> dict[str, Any]:
    """Return a tensor as the manifest holds it."""
    entry = {field.name: getattr(ref, field.name) for field in fields(TensorRef)}
    return {**entry, "size": list(ref.size), "stride": list(ref.stride)}


def _check_texts(manifest: Mapping[str, Any]) -> None:
    try:
        datetime.fromisoformat(manifest["created"])
        datetime.fromisoformat(manifest["run"]["started"])
        sites = [manifest["site"], *(finding["site"] for finding in manifest["findings"])]
        for site in (*sites, *manifest["sites"]):
            if site is not None:
                Site.parse(site)
    except ValueError as problem:
        raise CorruptIncidentError(f"its manifest is wrong: {problem}") from problem


def _check_storages(storages: list[dict[str, Any]], max_bytes: int) -> None:
    declared = sum(storage["bytes"] for storage in storages)
    if declared > max_bytes:
        raise CorruptIncidentError(
            f"it declares {declared} bytes of tensors, the most are {max_bytes}"
        )
    sizes: dict[str, int] = {}
    for n, storage in enumerate(storages):
        if sizes.setdefault(storage["hash"], storage["bytes"]) != storage["bytes"]:
            raise CorruptIncidentError(f"storage {n} has the hash of one of another size")


def _tensor_problem(
    tensor: Mapping[str, Any], storages: list[dict[str, Any]], max_bytes: int
) -> str | None:
    size, stride, offset = tensor["size"], tensor["stride"], tensor["offset"]
    if len(size) != len(stride):
        return f"has {len(size)} dimensions and {len(stride)} strides"
    itemsize = DTYPES[tensor["dtype"]].itemsize
    elements = math.prod(size)
    number = tensor["storage"]
    if number == -1:
        return None if elements < 2**62 else f"has an impossible size {size}"
    if number >= len(storages):
        return f"names storage {number} of {len(storages)}"
    if elements * itemsize > max_bytes:
        return f"declares {elements * itemsize} bytes, the most are {max_bytes}"
    last = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if elements else -1
    if (offset + last + 1) * itemsize > storages[number]["bytes"]:
        return f"reaches outside its storage of {storages[number]['bytes']} bytes"
    return None


def _check_values(manifest: dict[str, Any]) -> list[int]:
    """Look at every value, without recursion; return the tensor indices in nodes.

    Floats must be finite, and the depth one that code can follow by recursion.
    """
    indices: list[int] = []
    level: list[Any] = [manifest]
    for _ in range(MAX_JSON_DEPTH):
        below: list[Any] = []
        for item in level:
            for child in item.values() if type(item) is dict else item:
                kind = type(child)
                if kind is dict or kind is list:
                    below.append(child)
                    if kind is dict and child.get("$") == "tensor":
                        indices.append(_index(child.get("i")))
                elif kind is float and not math.isfinite(child):
                    raise CorruptIncidentError("its manifest has a number that is not finite")
        level = below
        if not level:
            return indices
    raise CorruptIncidentError(f"its manifest is nested more than {MAX_JSON_DEPTH} deep")


def _index(value: object) -> int:
    if type(value) is not int or value < 0:
        raise CorruptIncidentError("a tensor in its manifest has no index")
    return value


def _tensor_indices(manifest: Mapping[str, Any]) -> Iterator[int]:
    """Yield every tensor index of a manifest that fits the schema."""
    for segment in (manifest["segment"], *manifest["controls"]):
        if segment["loss"] is not None:
            yield segment["loss"]["tensor"]
        yield from _given(segment["gradients"])
        for backward in segment["backwards"]:
            yield from _given(backward["gradients"])
        for call in segment["calls"]:
            yield from _given(call["outputs"])
            yield from call["state"]["buffers"].values()


def _given(entries: list[dict[str, Any]]) -> Iterator[int]:
    return (entry["tensor"] for entry in entries if entry["tensor"] is not None)
