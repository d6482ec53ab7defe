"""Nodes of Python objects: the class by name, and what is in `__dict__`, slots and the builtin."""

from __future__ import annotations

import functools
from functools import partial
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic
from weakref import WeakKeyDictionary

from flightrec.errors import CannotRebuildError
from flightrec.tree.containers import SHAPES, TAGS
from flightrec.tree.holes import Hole
from flightrec.tree.local import is_namedtuple, write_namedtuple
from flightrec.tree.naming import class_name, importable_class, is_native, mro
from flightrec.tree.native import native_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.containers import Shape
    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged

OUTSIDE: Mapping[str, str] = {
    "logging": "a logger",
    "threading": "a thread or a lock",
    "_thread": "a lock",
    "multiprocessing": "part of another process",
    "concurrent": "a pool of workers",
    "asyncio": "part of an event loop",
    "socket": "a connection",
    "subprocess": "a process",
    "tempfile": "a temporary file",
    "sqlite3": "a connection",
    "weakref": "a weak reference",
    "torch.distributed": "part of a process group",
    "torch.optim": "an optimizer or a schedule",
    "torch.utils.data": "a loader or a dataset",
    "torch.utils.tensorboard": "a log writer",
    "torch.fx": "a traced graph",
    "torch.jit": "a compiled program",
    "torch.cuda": "a stream, event or graph of a device",
    "torch.amp": "a gradient scaler or a context",
    "torch.profiler": "a profiler",
}
"""Packages whose objects belong to the process and not to the model, with what they are."""


_SLOTS: WeakKeyDictionary[type, tuple[tuple[str, Any], ...]] = WeakKeyDictionary()


def state_of(value: Any) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Return what is in `__dict__` and in slots, without calling the object's own methods."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = {}
    held = list(dict.items(attributes)) if isinstance(attributes, dict) else []
    kind = type(value)
    members = _SLOTS.get(kind)
    if members is None:
        members = _SLOTS[kind] = _members(kind)
    slots = []
    for name, member in members:
        try:
            slots.append((name, member.__get__(value)))
        except AttributeError:  # a slot that was never set
            continue
    return held, slots


def _members(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the slots that a class and those above it declare."""
    return tuple(
        (name, member)
        for base in mro(kind)
        if not is_native(base)
        for name, member in list(vars(base).items())
        if type(member) is MemberDescriptorType
    )


_VERDICTS: WeakKeyDictionary[type, str | None] = WeakKeyDictionary()


def why_opaque(kind: type) -> str | None:
    """Say why objects of a class cannot be made again from what Python sees of them, or None."""
    if kind not in _VERDICTS:
        _VERDICTS[kind] = _judge(kind)
    return _VERDICTS[kind]


def _judge(kind: type) -> str | None:
    for base in mro(kind):
        home = class_name(base).partition(":")[0]
        for package, what in OUTSIDE.items():
            if home == package or home.startswith(f"{package}."):
                return what
        if "__del__" in vars(base):
            return "its class has a __del__, which an incident must never run"
        if base is object or base in TAGS or base is functools.partial:
            break
        if "n_sequence_fields" in vars(base):  # a tuple with names, made in C
            break
        if base is Generic:
            continue
        new = vars(base).get("__new__")
        if is_native(base) or (new is not None and type(new) is type(object.__new__)):
            return f"{base.__name__} keeps its state where Python cannot see it"
    return None


def write_object(encoder: Encoder, value: Any, name: str) -> Node:
    """Class by name, content of the builtin it derives from if any, attributes and slots."""
    kind = type(value)
    why = why_opaque(kind)
    if why is not None:
        node = native_node(value)
        if node is not None:
            return node
    title = importable_class(kind)
    if title is None and why is None:
        if is_namedtuple(kind):
            return write_namedtuple(encoder, value, name)
        why = "its class cannot be imported under its own name"
    if why is not None:
        return encoder.missing(value, name, why)
    held, slots = state_of(value)
    shape = _shape(kind)
    size = 0 if shape is None or shape.size is None else shape.size(value)
    why = encoder.afford(items=size + len(held) + len(slots))
    if why is not None:
        return encoder.missing(value, name, why)
    made = encoder.open(value, "object")
    made["class"] = title
    if shape is not None:
        made["of"] = TAGS[shape.base]
        shape.write(encoder, value, made, name)
    write_state(encoder, made, held, slots, name)
    return made


def write_state(
    encoder: Encoder,
    node: Tagged,
    held: list[tuple[str, Any]],
    slots: list[tuple[str, Any]],
    name: str,
) -> None:
    """Put attributes and slots into a node, as lists of name and node."""
    for key, pairs in (("state", held), ("slots", slots)):
        if pairs:
            node[key] = [
                [encoder.encode(field), encoder.encode(item, f"{name}.{_text(field)}")]
                for field, item in pairs
            ]


def _text(field: Any) -> str:
    return field if type(field) is str else f"<{type(field).__name__}>"


def _shape(kind: type) -> Shape | None:
    return next((SHAPES[TAGS[base]] for base in mro(kind) if base in TAGS), None)


def read_object(decoder: Decoder, node: Tagged) -> Any:
    """Make an object without its constructor and fill it in."""
    kind = decoder.resolve_class(node["class"])
    try:
        if "of" in node:
            made = SHAPES[node["of"]].read(decoder, kind, node)
        else:
            made = decoder.made(node, object.__new__(kind))
    except TypeError as fault:
        raise CannotRebuildError(f"{node['class']} is no longer what it was: {fault}") from fault
    if type(made) is Hole:
        return made
    decoder.made(node, made)
    read_state(decoder, node, made)
    return made


def read_state(decoder: Decoder, node: Tagged, made: Any) -> None:
    """Set attributes and slots of an object that was made without its constructor."""
    for name_node, child in node.get("state", ()):
        name, value = decoder.decode(name_node), decoder.decode(child)
        held = object.__getattribute__(made, "__dict__")
        held[name] = value
        if type(value) is Hole:
            decoder.patch(value, partial(held.__setitem__, name))
    for name_node, child in node.get("slots", ()):
        name, value = decoder.decode(name_node), decoder.decode(child)
        spaces = [vars(base) for base in mro(type(made))]
        member = next((space[name] for space in spaces if name in space), None)
        if type(member) is not MemberDescriptorType:
            raise CannotRebuildError(f"{node.get('class')} has no slot {name!r} any more")
        member.__set__(made, value)
        if type(value) is Hole:
            decoder.patch(value, partial(member.__set__, made))


READERS: Mapping[str, Callable[[Any, Any], Any]] = {"object": read_object}
