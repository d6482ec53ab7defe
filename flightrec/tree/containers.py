"""Nodes of containers: lists, tuples, dictionaries, sets, queues, and subclasses of builtins."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flightrec.errors import CannotRebuildError
from flightrec.tree.holes import Hole, filled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged

_UNIFORM = 16
"""Lists longer than this are tried as plain numbers all of one type, which is far faster."""

_PACKED = 1000
"""Lists of more integers or floats than this become a tensor."""

_SAFE_INT = 2**63


@dataclass(frozen=True, slots=True)
class Shape:
    """How the content of a builtin type is written and read, for it and its subclasses."""

    base: type
    size: Callable[[Any], int] | None
    """The number of elements for the budget, by the builtin's own method; None for scalars."""

    write: Callable[[Encoder, Any, Tagged, str], None]
    """Put the content into the node."""

    read: Callable[[Decoder, type, Tagged], Any]
    """Make an object of a subclass and fill it, without calling its own methods."""


def key_text(key: Any) -> str:
    """Return a key as it stands in a path; only plain keys have a text that is theirs."""
    return repr(key) if type(key) in (str, int, bool, float) else f"<{type(key).__name__}>"


def items_node(encoder: Encoder, items: list[Any], name: str) -> list[Node]:
    """Return the nodes of the elements of a sequence."""
    if len(items) > _UNIFORM and _is_plain(items):
        return items
    return [encoder.encode(item, f"{name}[{i}]") for i, item in enumerate(items)]


def _is_plain(items: list[Any]) -> bool:
    """Are all of them of one plain type, and their own nodes?"""
    kinds = set(map(type, items))
    if kinds == {int}:
        return _is_small(items)
    return kinds == {bool} or (kinds == {float} and all(map(math.isfinite, items)))


def _is_small(items: list[Any]) -> bool:
    """Do all integers fit 64 bits? Floats always do."""
    if type(items[0]) is float:
        return True
    return bool(min(items) >= -_SAFE_INT and max(items) < _SAFE_INT)


def pairs_node(encoder: Encoder, pairs: Iterable[tuple[Any, Any]], name: str) -> list[list[Node]]:
    """Return the nodes of keys and values, in order."""
    encode = encoder.encode
    return [[encode(key), encode(item, f"{name}[{key_text(key)}]")] for key, item in pairs]


def _write_sequence(iterate: Callable[[Any], Any]) -> Callable[[Encoder, Any, Tagged, str], None]:
    def write(encoder: Encoder, value: Any, node: Tagged, name: str) -> None:
        _put_items(encoder, list(iterate(value)), node, name)

    return write


def _put_items(encoder: Encoder, items: list[Any], node: Tagged, name: str) -> None:
    """Put the elements of a sequence into a node; many plain numbers become a tensor."""
    if len(items) > _PACKED and set(map(type, items)) in ({int}, {float}) and _is_small(items):
        dtype = torch.int64 if type(items[0]) is int else torch.float64
        packed = torch.tensor(items, dtype=dtype, device="cpu")
        index = encoder.table.add(packed, role=encoder.role, name=name, owned=True)
        node["t"] = {"$": "tensor", "i": index}
    else:
        node["v"] = items_node(encoder, items, name)


def _items(decoder: Decoder, node: Tagged) -> list[Node]:
    """Return the nodes of the elements."""
    if "t" in node:
        packed: list[Node] = decoder.tensor(node["t"]).tolist()
        return packed
    found: list[Node] = node["v"]
    return found


def _write_unordered(iterate: Callable[[Any], Any]) -> Callable[[Encoder, Any, Tagged, str], None]:
    """Sort the nodes: text hashes differently in every process, and equal sets should agree."""

    def write(encoder: Encoder, value: Any, node: Tagged, name: str) -> None:
        nodes = items_node(encoder, list(iterate(value)), name)
        node["v"] = sorted(nodes, key=lambda item: json.dumps(item, sort_keys=True))

    return write


def _write_pairs(items: Callable[[Any], Any]) -> Callable[[Encoder, Any, Tagged, str], None]:
    def write(encoder: Encoder, value: Any, node: Tagged, name: str) -> None:
        node["v"] = pairs_node(encoder, list(items(value)), name)

    return write


def _write_default(encoder: Encoder, value: Any, node: Tagged, name: str) -> None:
    factory = defaultdict.__dict__["default_factory"].__get__(value)
    node["factory"] = encoder.encode(factory, f"{name}.default_factory")
    node["v"] = pairs_node(encoder, list(dict.items(value)), name)


def _write_deque(encoder: Encoder, value: Any, node: Tagged, name: str) -> None:
    _put_items(encoder, list(deque.__iter__(value)), node, name)
    node["max"] = deque.__dict__["maxlen"].__get__(value)


def _write_scalar(base: Any) -> Callable[[Encoder, Any, Tagged, str], None]:
    """The value as the builtin it is; the builtin's own conversion makes an exact copy."""
    convert = getattr(base, f"__{base.__name__}__", None)

    def write(encoder: Encoder, value: Any, node: Tagged, name: str) -> None:
        exact = base.__getitem__(value, slice(None)) if convert is None else convert(value)
        node["v"] = encoder.encode(exact, name)

    return write


def _read_list(decoder: Decoder, kind: type, node: Tagged) -> Any:
    made: Any = decoder.made(node, list.__new__(kind))
    for i, child in enumerate(_items(decoder, node)):
        value = decoder.decode(child)
        list.append(made, value)
        if type(value) is Hole:
            decoder.patch(value, partial(list.__setitem__, made, i))
    return made


def _read_deque(decoder: Decoder, kind: type, node: Tagged) -> Any:
    made: Any = decoder.made(node, deque.__new__(kind))
    deque.__init__(made, (), node["max"])
    for i, child in enumerate(_items(decoder, node)):
        value = decoder.decode(child)
        deque.append(made, value)
        if type(value) is Hole:
            decoder.patch(value, partial(deque.__setitem__, made, i))
    return made


def _read_set(decoder: Decoder, kind: type, node: Tagged) -> Any:
    made: Any = decoder.made(node, set.__new__(kind))
    for child in node["v"]:
        value = decoder.decode(child)
        if type(value) is Hole:
            decoder.patch(value, partial(set.add, made))
        else:
            set.add(made, value)
    return made


def _read_pairs(base: Any) -> Callable[[Decoder, type, Tagged], Any]:
    def read(decoder: Decoder, kind: type, node: Tagged) -> Any:
        made = decoder.made(node, base.__new__(kind))
        if "factory" in node:
            factory = decoder.decode(node["factory"])
            defaultdict.__dict__["default_factory"].__set__(made, factory)
        for key_node, child in node["v"]:
            key, value = decoder.decode(key_node), decoder.decode(child)
            base.__setitem__(made, key, value)
            if type(value) is Hole:
                decoder.patch(value, partial(base.__setitem__, made, key))
        return made

    return read


def _read_frozen(base: Any) -> Callable[[Decoder, type, Tagged], Any]:
    def read(decoder: Decoder, kind: type, node: Tagged) -> Any:
        items = [decoder.decode(child) for child in _items(decoder, node)]
        if base is tuple and hasattr(kind, "n_sequence_fields"):
            return filled(items, lambda real: kind(real))
        return filled(items, lambda real: base.__new__(kind, real))

    return read


def _read_scalar(base: Any) -> Callable[[Decoder, type, Tagged], Any]:
    def read(decoder: Decoder, kind: type, node: Tagged) -> Any:
        value = decoder.decode(node["v"])
        if type(value) is not base:
            raise CannotRebuildError(f"{kind.__qualname__} holds a {type(value).__name__}")
        if base is bytearray:
            made: Any = bytearray.__new__(kind)
            bytearray.extend(made, value)
            return made
        return base.__new__(kind, value)

    return read


def _scalar(base: type) -> Shape:
    return Shape(base, None, _write_scalar(base), _read_scalar(base))


def _mapping(base: Any) -> Shape:
    return Shape(base, dict.__len__, _write_pairs(base.items), _read_pairs(base))


SHAPES: Mapping[str, Shape] = {
    "list": Shape(list, list.__len__, _write_sequence(list.__iter__), _read_list),
    "tuple": Shape(tuple, tuple.__len__, _write_sequence(tuple.__iter__), _read_frozen(tuple)),
    "dict": _mapping(dict),
    "ordered": _mapping(OrderedDict),
    "counter": Shape(Counter, dict.__len__, _write_pairs(dict.items), _read_pairs(dict)),
    "default": Shape(defaultdict, dict.__len__, _write_default, _read_pairs(defaultdict)),
    "set": Shape(set, set.__len__, _write_unordered(set.__iter__), _read_set),
    "frozenset": Shape(
        frozenset,
        frozenset.__len__,
        _write_unordered(frozenset.__iter__),
        _read_frozen(frozenset),
    ),
    "deque": Shape(deque, deque.__len__, _write_deque, _read_deque),
    "str": _scalar(str),
    "int": _scalar(int),
    "float": _scalar(float),
    "complex": _scalar(complex),
    "bytes": _scalar(bytes),
    "bytearray": _scalar(bytearray),
}
"""By the name that a node has for it: its tag where exact, `of` in the node of a subclass."""

TAGS: Mapping[type, str] = {shape.base: tag for tag, shape in SHAPES.items()}

_FROZEN = frozenset({"tuple", "frozenset"})


def _writer(tag: str, shape: Shape, size: Callable[[Any], int]) -> Any:
    def write(encoder: Encoder, value: Any, name: str) -> Node:
        why = encoder.afford(items=size(value))
        if why is not None:
            return encoder.missing(value, name, why)
        node = encoder.open(value, tag)
        shape.write(encoder, value, node, name)
        if tag in _FROZEN and not any(isinstance(item, dict) for item in node.get("v", ())):
            encoder.forget(value)
        return node

    return write


def _reader(shape: Shape) -> Callable[[Decoder, Tagged], Any]:
    return lambda decoder, node: shape.read(decoder, shape.base, node)


WRITERS: Mapping[type, Callable[[Any, Any, str], Node]] = {
    shape.base: _writer(tag, shape, shape.size)
    for tag, shape in SHAPES.items()
    if shape.size is not None
}

READERS: Mapping[str, Callable[[Any, Any], Any]] = {
    tag: _reader(shape) for tag, shape in SHAPES.items() if shape.size is not None
}
