"""Nodes of what is no class of its own: namespaces, and read-only views of dictionaries."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from flightrec.tree.holes import filled
from flightrec.tree.objects import read_state, state_of, write_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged


def write_namespace(encoder: Encoder, value: Any, name: str) -> Node:
    """The attributes of a `types.SimpleNamespace`."""
    held, _ = state_of(value)
    why = encoder.afford(items=len(held))
    if why is not None:
        return encoder.missing(value, name, why)
    node = encoder.open(value, "namespace")
    write_state(encoder, node, held, [], name)
    return node


def write_proxy(encoder: Encoder, value: Any, name: str) -> Node:
    """The mapping behind a read-only view, where it is a dictionary."""
    try:
        behind = value | {}
    except Exception:
        behind = None
    if type(behind) is not dict:
        return encoder.missing(value, name, "a view of a mapping that is no dictionary")
    node = encoder.open(value, "proxy")
    node["v"] = encoder.encode(behind, name)
    return node


def _read_namespace(decoder: Decoder, node: Tagged) -> Any:
    made = decoder.made(node, SimpleNamespace())
    read_state(decoder, node, made)
    return made


WRITERS: Mapping[type, Callable[[Any, Any, str], Node]] = {
    SimpleNamespace: write_namespace,
    MappingProxyType: write_proxy,
}

READERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "namespace": _read_namespace,
    "proxy": lambda decoder, node: filled(
        [decoder.decode(node["v"])], lambda real: MappingProxyType(real[0])
    ),
}
