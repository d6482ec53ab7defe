"""Nodes of values without parts: numbers, text, bytes, paths, dates, torch's small constants."""

from __future__ import annotations

import base64
import datetime
import decimal
import fractions
import math
import pathlib
import re
import uuid
import zoneinfo
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flightrec.errors import CorruptIncidentError
from flightrec.tree.nodes import number, parse_number
from flightrec.tree.raw import DTYPES, raw_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged

INLINE = 1024
"""Bytes up to this many stand in the node itself, more become a tensor of the table."""

_SAFE_INT = 2**63


def write_int(_encoder: Encoder, value: int, _name: str) -> Node:
    """Plain where it fits 64 bits, else hexadecimal: decimal text has a length limit."""
    if -_SAFE_INT <= value < _SAFE_INT:
        return value
    return {"$": "int", "v": hex(value)}


def write_float(_encoder: Encoder, value: float, _name: str) -> Node:
    """Plain where finite, else tagged."""
    return value if math.isfinite(value) else number(value)


def write_str(encoder: Encoder, value: str, name: str) -> Node:
    """Plain, except for text that UTF-8 cannot hold."""
    left = encoder.text_left - len(value)
    if left < 0:
        return encoder.missing(value, name, str(encoder.afford(text=len(value))))
    encoder.text_left = left
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"$": "str", "v": _to64(value.encode("utf-8", "surrogatepass"))}
    return value


def write_bytes(encoder: Encoder, value: bytes | bytearray, name: str) -> Node:
    """Inline as base64 where short, else a tensor of bytes."""
    node = encoder.open(value, type(value).__name__)
    if len(value) <= INLINE:
        node["v"] = _to64(bytes(value))
        return node
    why = encoder.afford(text=len(value))
    if why is not None:
        return encoder.missing(value, name, why)
    copy = torch.from_numpy(np.frombuffer(value, dtype=np.uint8).copy())
    index = encoder.table.add(copy, role=encoder.role, name=name, owned=True)
    node["t"] = {"$": "tensor", "i": index}
    return node


def _to64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _content(decoder: Decoder, node: Tagged) -> bytes:
    if "t" in node:
        return raw_bytes(decoder.tensor(node["t"])).tobytes()
    return base64.b64decode(node["v"], validate=True)


def write_complex(_encoder: Encoder, value: complex, _name: str) -> Node:
    """Real and imaginary part."""
    return {"$": "complex", "v": [number(value.real), number(value.imag)]}


def write_device(_encoder: Encoder, value: torch.device, _name: str) -> Node:
    """Type and index as text."""
    return {"$": "device", "v": str(value)}


def write_constant(_encoder: Encoder, value: Any, _name: str) -> Node:
    """A dtype, layout, memory format or scheme by its name in torch."""
    return {"$": "torch", "v": str(value).removeprefix("torch.")}


def write_datetime(encoder: Encoder, value: datetime.datetime, name: str) -> Node:
    """Its fields, and its time zone as a node."""
    fields = [value.year, value.month, value.day, *_clock(value), value.fold]
    return {"$": "datetime", "v": fields, "zone": encoder.encode(value.tzinfo, name)}


def write_time(encoder: Encoder, value: datetime.time, name: str) -> Node:
    """Its fields, and its time zone as a node."""
    zone = encoder.encode(value.tzinfo, name)
    return {"$": "time", "v": [*_clock(value), value.fold], "zone": zone}


def _clock(value: datetime.datetime | datetime.time) -> list[int]:
    return [value.hour, value.minute, value.second, value.microsecond]


def write_timedelta(_encoder: Encoder, value: datetime.timedelta, _name: str) -> Node:
    """Days, seconds, microseconds."""
    return {"$": "timedelta", "v": [value.days, value.seconds, value.microseconds]}


def write_timezone(encoder: Encoder, value: datetime.timezone, name: str) -> Node:
    """Its offset from UTC."""
    return {"$": "timezone", "v": encoder.encode(value.utcoffset(None), name)}


def write_path(_encoder: Encoder, value: pathlib.PurePath, _name: str) -> Node:
    """Text and flavour."""
    return {"$": "path", "v": str(value), "kind": type(value).__name__}


def write_pattern(encoder: Encoder, value: re.Pattern[Any], name: str) -> Node:
    """Source and flags of a regular expression."""
    source = encoder.encode(value.pattern, name)
    return {"$": "pattern", "v": source, "flags": value.flags}


def _text(tag: str) -> Callable[[Encoder, Any, str], Node]:
    """Return a writer for values whose `str` says all; only for exact types of the library."""
    return lambda _encoder, value, _name: {"$": tag, "v": str(value)}


_ATOMS: dict[str, Any] = {"ellipsis": ..., "notimplemented": NotImplemented}

WRITERS: Mapping[type, Callable[[Any, Any, str], Node]] = {
    int: write_int,
    float: write_float,
    str: write_str,
    bytes: write_bytes,
    bytearray: write_bytes,
    complex: write_complex,
    type(...): lambda _encoder, _value, _name: {"$": "ellipsis"},
    type(NotImplemented): lambda _encoder, _value, _name: {"$": "notimplemented"},
    torch.device: write_device,
    torch.dtype: write_constant,
    torch.layout: write_constant,
    torch.memory_format: write_constant,
    type(torch.per_tensor_affine): write_constant,
    datetime.datetime: write_datetime,
    datetime.date: _text("date"),
    datetime.time: write_time,
    datetime.timedelta: write_timedelta,
    datetime.timezone: write_timezone,
    zoneinfo.ZoneInfo: lambda _encoder, value, _name: {"$": "zoneinfo", "v": value.key},
    decimal.Decimal: _text("decimal"),
    fractions.Fraction: _text("fraction"),
    uuid.UUID: _text("uuid"),
    re.Pattern: write_pattern,
}

_PATHS = {
    kind.__name__: kind
    for kind in (
        pathlib.PurePath,
        pathlib.Path,
        pathlib.PurePosixPath,
        pathlib.PosixPath,
        pathlib.PureWindowsPath,
        pathlib.WindowsPath,
    )
}

WRITERS = {**WRITERS, **dict.fromkeys(_PATHS.values(), write_path)}


def _read_path(_decoder: Decoder, node: Tagged) -> Any:
    kind = _PATHS[node["kind"]]
    try:
        return kind(node["v"])
    except NotImplementedError:  # a Windows path on POSIX, or the reverse
        pure = pathlib.PureWindowsPath if "Windows" in node["kind"] else pathlib.PurePosixPath
        return pure(node["v"])


def _read_torch(_decoder: Decoder, node: Tagged) -> Any:
    if node["v"] in DTYPES:
        return DTYPES[node["v"]]
    kinds = (torch.layout, torch.memory_format, type(torch.per_tensor_affine))
    found = vars(torch).get(node["v"])
    if not isinstance(found, kinds):
        raise CorruptIncidentError(f"no such constant in torch: {node['v']!r}")
    return found


def _read_datetime(decoder: Decoder, node: Tagged) -> Any:
    year, month, day, hour, minute, second, microsecond, fold = node["v"]
    zone = decoder.decode(node["zone"])
    return datetime.datetime(
        year, month, day, hour, minute, second, microsecond, tzinfo=zone, fold=fold
    )


def _read_time(decoder: Decoder, node: Tagged) -> Any:
    hour, minute, second, microsecond, fold = node["v"]
    zone = decoder.decode(node["zone"])
    return datetime.time(hour, minute, second, microsecond, tzinfo=zone, fold=fold)


READERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "int": lambda _decoder, node: int(node["v"], 16),
    "float": lambda _decoder, node: parse_number(node),
    "str": lambda _decoder, node: base64.b64decode(node["v"]).decode("utf-8", "surrogatepass"),
    "bytes": _content,
    "bytearray": lambda decoder, node: bytearray(_content(decoder, node)),
    "complex": lambda _decoder, node: complex(*map(parse_number, node["v"])),
    "ellipsis": lambda _decoder, _node: ...,
    "notimplemented": lambda _decoder, _node: NotImplemented,
    "device": lambda _decoder, node: torch.device(node["v"]),
    "torch": _read_torch,
    "datetime": _read_datetime,
    "date": lambda _decoder, node: datetime.date.fromisoformat(node["v"]),
    "time": _read_time,
    "timedelta": lambda _decoder, node: datetime.timedelta(*node["v"]),
    "timezone": lambda decoder, node: datetime.timezone(decoder.decode(node["v"])),
    "zoneinfo": lambda _decoder, node: zoneinfo.ZoneInfo(node["v"]),
    "decimal": lambda _decoder, node: decimal.Decimal(node["v"]),
    "fraction": lambda _decoder, node: fractions.Fraction(node["v"]),
    "uuid": lambda _decoder, node: uuid.UUID(node["v"]),
    "path": _read_path,
    "pattern": lambda decoder, node: re.compile(decoder.decode(node["v"]), node["flags"]),
}
