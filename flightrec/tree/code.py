"""Nodes of code by name: classes, functions, methods, partials, enum members."""

from __future__ import annotations

import functools
import io
import types
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flightrec.errors import CannotRebuildError
from flightrec.tree.holes import Hole, filled
from flightrec.tree.naming import importable_class, importable_function
from flightrec.tree.objects import read_state, state_of, why_opaque, write_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged

_BUILTIN = {
    f"{kind.__module__}:{kind.__qualname__}": kind
    for kind in (
        *(bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset),
        *(object, type, slice, range, type(None)),
    )
}
"""Classes that need no trust, by name; `NoneType` is listed for type annotations kept as values."""


_FILE: type = io.TextIOWrapper.__mro__[-2]
"""The C class below `io.IOBase`, from which every file derives."""

_NAMED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    functools._lru_cache_wrapper,
)
"""Types of functions whose name can be read without running anything of the user's."""


def write_class(encoder: Encoder, value: type, name: str) -> Node:
    """A class by name."""
    if value is type(None):
        return {"$": "class", "name": "builtins:NoneType"}
    title = importable_class(value)
    if title is None:
        return encoder.missing(value, name, "a class that cannot be imported under its own name")
    return {"$": "class", "name": title}


def write_function(encoder: Encoder, value: Any, name: str) -> Node:
    """A function by name."""
    title = importable_function(value)
    if title is not None:
        return {"$": "function", "name": title}
    inner = getattr(value, "__qualname__", "")
    if isinstance(inner, str) and "<" in inner:
        return encoder.missing(value, name, f"{inner} is local to a function")
    return encoder.missing(value, name, "a function that cannot be imported under its own name")


def write_builtin(encoder: Encoder, value: Any, name: str) -> Node:
    """A built-in function by name; one that is bound to an object cannot be found by name."""
    title = importable_function(value)
    if title is not None:
        return {"$": "function", "name": title}
    return encoder.missing(value, name, "a built-in method of an object")


def write_method(encoder: Encoder, value: types.MethodType, name: str) -> Node:
    """A method: the object it is bound to, and its function by name."""
    function = value.__func__
    title = importable_function(function) if type(function) in _NAMED else None
    if title is None:
        return encoder.missing(value, name, "a method that cannot be found under its own name")
    node = encoder.open(value, "method")
    node["function"] = title
    node["self"] = encoder.encode(value.__self__, f"{name}.__self__")
    return node


def write_partial(encoder: Encoder, value: functools.partial[Any], name: str) -> Node:
    """Function, arguments, and attributes of a `functools.partial` or a subclass."""
    kind = type(value)
    title = importable_class(kind)
    if title is None or (kind is not functools.partial and why_opaque(kind)):
        return encoder.missing(value, name, "a class of partials that cannot be made again")
    space = functools.partial.__dict__
    function, args, kwargs = (space[part].__get__(value) for part in ("func", "args", "keywords"))
    why = encoder.afford(items=len(args) + len(kwargs))
    if why is not None:
        return encoder.missing(value, name, why)
    node = encoder.open(value, "partial")
    if kind is not functools.partial:
        node["class"] = title
    node["function"] = encoder.encode(function, f"{name}.func")
    node["args"] = encoder.encode(args, f"{name}.args")
    node["kwargs"] = encoder.encode(kwargs, f"{name}.keywords")
    held, _ = state_of(value)
    write_state(encoder, node, held, [], name)
    return node


def write_enum(encoder: Encoder, value: Enum, name: str) -> Node:
    """A member by class, name and value; the name is null for combined flags without one."""
    title = importable_class(type(value))
    if title is None:
        return encoder.missing(value, name, "its class cannot be imported under its own name")
    held = dict(state_of(value)[0])
    node = encoder.open(value, "enum")
    member = held.get("_name_")
    node |= {"class": title, "name": member, "value": encoder.encode(held.get("_value_"), name)}
    return node


def write_slice(encoder: Encoder, value: slice, name: str) -> Node:
    """Start, stop and step."""
    bounds = (value.start, value.stop, value.step)
    return {"$": "slice", "v": [encoder.encode(bound, name) for bound in bounds]}


def write_range(encoder: Encoder, value: range, name: str) -> Node:
    """Start, stop and step."""
    bounds = (value.start, value.stop, value.step)
    return {"$": "range", "v": [encoder.encode(bound, name) for bound in bounds]}


def write_size(_encoder: Encoder, value: torch.Size, _name: str) -> Node:
    """The lengths of a `torch.Size`."""
    return {"$": "size", "v": [int(length) for length in value]}


def _never(why: str) -> Callable[[Encoder, Any, str], Node]:
    return lambda encoder, value, name: encoder.missing(value, name, why)


def _read_class(decoder: Decoder, node: Tagged) -> Any:
    known = _BUILTIN.get(node["name"])
    return decoder.resolve_class(node["name"]) if known is None else known


def _read_method(decoder: Decoder, node: Tagged) -> Any:
    function = decoder.resolve_function(node["function"])
    if isinstance(function, types.MethodType):
        function = function.__func__
    owner = decoder.decode(node["self"])
    return filled([owner], lambda real: types.MethodType(function, real[0]))


def _read_partial(decoder: Decoder, node: Tagged) -> Any:
    kind: Any = functools.partial
    if "class" in node:
        kind = decoder.resolve_class(node["class"])
        if not issubclass(kind, functools.partial):
            raise CannotRebuildError(f"{node['class']} is no partial any more")
    items = [decoder.decode(node[part]) for part in ("function", "args", "kwargs")]

    def build(real: list[Any]) -> Any:
        function, args, kwargs = real
        made: Any = functools.partial.__new__(kind, print)
        # unlike the constructor this does not merge a partial of a partial
        functools.partial.__setstate__(made, (function, args, kwargs, None))  # type: ignore[attr-defined]
        read_state(decoder, node, made)
        return made

    return filled(items, build)


def _read_enum(decoder: Decoder, node: Tagged) -> Any:
    kind: Any = decoder.resolve_class(node["class"])
    if not issubclass(kind, Enum):
        raise CannotRebuildError(f"{node['class']} is no enum any more")
    members = kind.__members__
    if node["name"] in members:
        return members[node["name"]]
    value = decoder.decode(node["value"])
    if type(value) is Hole:
        raise CannotRebuildError(f"{node['class']} has a value that contains itself")
    try:
        return kind(value)
    except ValueError as fault:
        raise CannotRebuildError(f"{node['class']} has no member {node['name']!r}") from fault


WRITERS: Mapping[type, Callable[[Any, Any, str], Node]] = {
    type: write_class,
    types.FunctionType: write_function,
    types.BuiltinFunctionType: write_builtin,
    types.MethodType: write_method,
    np.ufunc: write_function,
    type(np.mean): write_function,
    functools._lru_cache_wrapper: write_function,
    functools.partial: write_partial,
    slice: write_slice,
    range: write_range,
    torch.Size: write_size,
    types.ModuleType: _never("a Python module"),
    types.GeneratorType: _never("a generator, which can be read only once"),
    types.CoroutineType: _never("a coroutine"),
    types.AsyncGeneratorType: _never("a generator, which can be read only once"),
    types.FrameType: _never("a stack frame"),
    types.TracebackType: _never("a traceback"),
    types.CodeType: _never("code"),
    memoryview: _never("a view of memory"),
}

BASES: Mapping[type, Callable[[Any, Any, str], Node]] = {
    type: write_class,
    _FILE: _never("an open file"),
    BaseException: _never("an exception"),
    functools.partial: write_partial,
}

READERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "class": _read_class,
    "function": lambda decoder, node: decoder.resolve_function(node["name"]),
    "method": _read_method,
    "partial": _read_partial,
    "enum": _read_enum,
    "slice": lambda decoder, node: slice(*map(decoder.decode, node["v"])),
    "range": lambda decoder, node: range(*map(decoder.decode, node["v"])),
    "size": lambda _decoder, node: torch.Size(node["v"]),
}
