"""Nodes of named tuples whose class cannot be imported: made in a function, gone after it."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

from flightrec.tree.holes import filled
from flightrec.tree.naming import mro

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged


def is_namedtuple(kind: type) -> bool:
    """Is it a plain named tuple, so that its fields say all there is to know?"""
    fields = vars(kind).get("_fields")
    return mro(kind) == (kind, tuple, object) and isinstance(fields, tuple)


def write_namedtuple(encoder: Encoder, value: Any, name: str) -> Node:
    """Name and fields of the class, and the elements."""
    items = list(tuple.__iter__(value))
    why = encoder.afford(items=len(items))
    if why is not None:
        return encoder.missing(value, name, why)
    fields = [str(field) for field in type(value)._fields]
    node = encoder.open(value, "namedtuple")
    node["name"] = type(value).__name__
    node["fields"] = fields
    node["v"] = [
        encoder.encode(item, f"{name}.{field}") for field, item in zip(fields, items, strict=True)
    ]
    return node


def _read_namedtuple(decoder: Decoder, node: Tagged) -> Any:
    """Make the class anew; the same fields and name give the same class in one decoder."""
    title, fields = str(node["name"]), tuple(map(str, node["fields"]))
    kind: Any = decoder.local.get((title, fields))
    if kind is None:
        kind = decoder.local[title, fields] = namedtuple(title, fields)
    items = [decoder.decode(child) for child in node["v"]]
    return filled(items, lambda real: kind(*real))


READERS: Mapping[str, Callable[[Any, Any], Any]] = {"namedtuple": _read_namedtuple}
