"""Nodes of values whose type is written in C: functions and enum members, found by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flightrec.errors import CannotRebuildError
from flightrec.tree.naming import importable_function, is_native

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.nodes import Node, Tagged


def native_node(value: Any) -> Node:
    """Return the node of a C function or enum member, None for anything else.

    Reads attributes only where the type itself is written in C, so that nothing of the user's
    runs. Enums made by pybind11 are told by the property that lists their members, and only
    torch's own can be kept, such as `SDPBackend`.
    """
    kind = type(value)
    if _is_torch_enum(kind):
        if vars(torch._C).get(kind.__qualname__) is kind and value.name in kind.__members__:
            return {"$": "torch_enum", "class": kind.__qualname__, "name": value.name}
    elif is_native(kind) and callable(value):
        title = importable_function(value)
        if title is not None:
            return {"$": "function", "name": title}
    return None


def _is_torch_enum(kind: Any) -> bool:
    listed = vars(kind).get("__members__") if isinstance(kind, type) else None
    return type(listed).__name__ == "pybind11_static_property"


def _read_enum(_decoder: Decoder, node: Tagged) -> Any:
    kind: Any = vars(torch._C).get(node["class"])
    if not _is_torch_enum(kind):
        raise CannotRebuildError(f"torch {torch.__version__} has no enum {node['class']!r}")
    members = kind.__members__
    if node["name"] not in members:
        raise CannotRebuildError(f"{node['class']} has no member {node['name']!r}")
    return members[node["name"]]


READERS: Mapping[str, Callable[[Any, Any], Any]] = {"torch_enum": _read_enum}
