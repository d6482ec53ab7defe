"""Tensors inside a value, each with its path, without copying anything."""

from __future__ import annotations

from collections import UserDict, deque
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from flightrec.guard import FAULTS, strict
from flightrec.tree.containers import key_text
from flightrec.tree.naming import mro
from flightrec.tree.objects import state_of, why_opaque

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATOMS = frozenset(
    {int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size}
)

_CLOSED = frozenset({torch.nn.Module, type, Enum})

MAX_DEPTH = 32
"""Containers inside containers that are looked into."""

MAX_ITEMS = 20_000
"""Items of a list, tuple or queue that are looked at; a longer one is data of the user's own."""


def leaves(value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (path, tensor) for every tensor inside a value, in order.

    Paths read like `['past']['values']`, `[0]`, `.logits`; the path of a bare tensor is empty.
    Looks into dictionaries, lists, tuples, queues, dataclasses, and the attributes of other
    objects, but not into modules, sets, classes and functions. A container that is met twice is
    looked into once, so cycles end.
    """
    if issubclass(type(value), torch.Tensor):
        yield "", value
        return
    yield from _inside(value, "", {id(value): value}, 0)


def _inside(
    value: Any, path: str, seen: dict[int, Any], depth: int
) -> Iterator[tuple[str, torch.Tensor]]:
    for step, child in _children_or_none(value):
        if type(child) in _ATOMS:
            continue
        if issubclass(type(child), torch.Tensor):
            yield path + step, child
        elif id(child) not in seen and depth < MAX_DEPTH:
            seen[id(child)] = child
            yield from _inside(child, path + step, seen, depth + 1)


def _children_or_none(value: Any) -> list[tuple[str, Any]]:
    try:
        return _children(value)
    except Exception:
        FAULTS["tree"] += 1
        if strict():
            raise
        return []


def _children(value: Any) -> list[tuple[str, Any]]:
    """Return (step of the path, child) for what is directly inside a value."""
    kind = type(value)
    chain = mro(kind)
    if dict in chain:
        return [(f"[{key_text(key)}]", child) for key, child in dict.items(value)]
    if tuple in chain:
        return _of_tuple(kind, value)
    if list in chain:
        return _numbered(list.__iter__(value))
    if deque in chain:
        return _numbered(deque.__iter__(value))
    if not _CLOSED.isdisjoint(chain) or why_opaque(kind) is not None:
        return []
    held, slots = state_of(value)
    if UserDict in chain:
        held, slots = [("data", data) for name, data in held if name == "data"], []
        return _children(held[0][1]) if held else []
    return [(f".{name}", child) for name, child in (*held, *slots)]


def _of_tuple(kind: type, value: tuple[Any, ...]) -> list[tuple[str, Any]]:
    names = next((vars(base)["_fields"] for base in mro(kind) if "_fields" in vars(base)), None)
    if isinstance(names, tuple):
        return [
            (f".{name}", child) for name, child in zip(names, tuple.__iter__(value), strict=False)
        ]
    return _numbered(tuple.__iter__(value))


def _numbered(items: Iterator[Any]) -> list[tuple[str, Any]]:
    first = enumerate(islice(items, MAX_ITEMS))
    return [(f"[{i}]", child) for i, child in first if type(child) not in _ATOMS]
