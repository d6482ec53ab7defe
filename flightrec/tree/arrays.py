"""Nodes of NumPy: arrays, scalars and dtypes."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flightrec.errors import CorruptIncidentError
from flightrec.tree.raw import raw_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged


def _dtype_text(dtype: np.dtype[Any]) -> Any:
    """Return the dtype as JSON: text, or for structured ones the list that `.npy` files use."""

    def lists(item: Any) -> Any:
        return [lists(part) for part in item] if isinstance(item, (list, tuple)) else item

    return lists(np.lib.format.dtype_to_descr(dtype))


def _dtype_read(text: Any) -> np.dtype[Any]:
    def field(item: list[Any]) -> tuple[Any, ...]:
        title, kind, *shape = item
        title = tuple(title) if isinstance(title, list) else title
        return title, fields(kind), *map(tuple, shape)

    def fields(item: Any) -> Any:
        return [field(part) for part in item] if isinstance(item, list) else item

    dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(fields(text))
    if dtype.hasobject:
        raise CorruptIncidentError("an array of objects where bytes were expected")
    return dtype


def write_array(encoder: Encoder, value: np.ndarray[Any, Any], name: str) -> Node:
    """Bytes as a tensor of the table, with dtype and shape; objects one by one."""
    kind = type(value)
    if kind is not np.ndarray and kind is not np.memmap:
        return encoder.missing(value, name, "a subclass of numpy.ndarray")
    if value.dtype.hasobject:
        return _write_objects(encoder, value, name)
    node = encoder.open(value, "ndarray")
    node["dtype"] = _dtype_text(value.dtype)
    node["shape"] = list(value.shape)
    node["writeable"] = value.flags.writeable
    node["order"] = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    if value.nbytes:
        flat = torch.from_numpy(_flat_bytes(value, shared=not encoder.table.copies))
        index = encoder.table.add(flat, role=encoder.role, name=name, owned=encoder.table.copies)
        node["t"] = {"$": "tensor", "i": index}
    return node


def _flat_bytes(value: np.ndarray[Any, Any], *, shared: bool) -> np.ndarray[Any, Any]:
    """Return the elements in memory order as bytes, shape (nbytes,), copied unless shared."""
    lines = value if value.flags.c_contiguous or not value.flags.f_contiguous else value.T
    copy = not (shared and lines.flags.c_contiguous and lines.flags.writeable)
    flat = np.array(lines, order="C", copy=True) if copy else np.asarray(lines)
    return flat.reshape(-1).view(np.uint8)


def _write_objects(encoder: Encoder, value: np.ndarray[Any, Any], name: str) -> Node:
    if value.dtype.names is not None:
        return encoder.missing(value, name, "a structured array that holds objects")
    why = encoder.afford(items=value.size)
    if why is not None:
        return encoder.missing(value, name, why)
    node = encoder.open(value, "ndarray")
    node["shape"] = list(value.shape)
    node["v"] = [encoder.encode(item, f"{name}[{i}]") for i, item in enumerate(value.flat)]
    return node


def _read_array(decoder: Decoder, node: Tagged) -> Any:
    shape = tuple(node["shape"])
    if "v" in node:
        if math.prod(shape) != len(node["v"]):
            raise CorruptIncidentError(f"{len(node['v'])} objects for the shape {shape}")
        made = decoder.made(node, np.empty(shape, dtype=object))
        for i, child in enumerate(node["v"]):
            made.flat[i] = decoder.decode(child)
        return made
    dtype = _dtype_read(node["dtype"])
    data = raw_bytes(decoder.tensor(node["t"])) if "t" in node else np.empty(0, dtype=np.uint8)
    buffer = bytearray(data.tobytes())
    array: np.ndarray[Any, Any]
    if node["order"] == "F":
        array = np.ndarray(shape, dtype=dtype, buffer=buffer, order="F")
    else:
        array = np.ndarray(shape, dtype=dtype, buffer=buffer)
    array.flags.writeable = node["writeable"] is True
    return array


def write_number(encoder: Encoder, value: np.generic, name: str) -> Node:
    """A NumPy scalar by dtype and bytes."""
    if value.dtype.hasobject or value.dtype.type is not type(value):
        return encoder.missing(value, name, "a NumPy scalar that holds objects")
    data = base64.b64encode(value.tobytes()).decode()
    return {"$": "npscalar", "dtype": _dtype_text(value.dtype), "v": data}


def _read_number(_decoder: Decoder, node: Tagged) -> Any:
    dtype = _dtype_read(node["dtype"])
    if dtype.itemsize == 0:  # the empty text
        return np.zeros((), dtype=dtype)[()]
    return np.frombuffer(base64.b64decode(node["v"]), dtype=dtype, count=1)[0]


def write_dtype(encoder: Encoder, value: np.dtype[Any], name: str) -> Node:
    """A dtype by its description."""
    if value.hasobject and value != np.dtype(object):
        return encoder.missing(value, name, "a dtype that holds objects")
    return {"$": "npdtype", "v": _dtype_text(value)}


def _read_dtype(_decoder: Decoder, node: Tagged) -> Any:
    return np.dtype(object) if node["v"] == "|O" else _dtype_read(node["v"])


WRITERS: Mapping[type, Callable[[Any, Any, str], Node]] = {np.ndarray: write_array}

BASES: Mapping[type, Callable[[Any, Any, str], Node]] = {
    np.ndarray: write_array,
    np.generic: write_number,
    np.dtype: write_dtype,
}

READERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "ndarray": _read_array,
    "npscalar": _read_number,
    "npdtype": _read_dtype,
}
