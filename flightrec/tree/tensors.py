"""Nodes of tensors: plain ones by index, the others by what they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flightrec.errors import CannotRebuildError
from flightrec.tree.naming import importable_class
from flightrec.tree.objects import read_state, state_of, write_state
from flightrec.tree.parts import is_plain
from flightrec.tree.raw import extent
from flightrec.tree.special import READERS as SPECIAL_READERS
from flightrec.tree.special import write_special

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged


def write_tensor(encoder: Encoder, value: torch.Tensor, name: str) -> Node:
    """The tensor's index; `leaf` false where autograd made it; its class and attributes."""
    known = encoder.parameters.get(id(value))
    if known is not None:
        return {"$": "parameter_ref", "name": known}
    if not is_plain(value):
        return write_special(encoder, value, name)
    if type(value) is not torch.Tensor or value.__dict__:
        with torch._C.DisableTorchFunction():
            return _write_dressed(encoder, value, name)
    index = encoder.table.add(value, role=encoder.role, name=name)
    if value.requires_grad and not value.is_leaf:
        return {"$": "tensor", "i": index, "leaf": False}
    return {"$": "tensor", "i": index}


def _write_dressed(encoder: Encoder, value: torch.Tensor, name: str) -> Node:
    """A parameter, a subclass that only adds methods, or a tensor with attributes."""
    kind = type(value)
    title = importable_class(kind)
    if title is None:
        return encoder.missing(value, name, "its class cannot be imported under its own name")
    held, slots = state_of(value)
    why = encoder.afford(items=len(held) + len(slots))
    if why is not None:
        return encoder.missing(value, name, why)
    node = encoder.open(value, "tensor")
    node["i"] = encoder.table.add(value, role=encoder.role, name=name)
    if value.requires_grad and not value.is_leaf:
        node["leaf"] = False
    if kind is torch.nn.Parameter:
        node["parameter"] = True
    elif kind is not torch.Tensor:
        node["class"] = title
    write_state(encoder, node, held, slots, name)
    return node


def read_tensor(decoder: Decoder, node: Tagged) -> torch.Tensor:
    """The tensor of that index; one index is one object."""
    found = decoder.tensors.get(node["i"])
    if found is not None:
        return found
    made = decoder.tensor(node)
    if node.get("leaf") is False and made.requires_grad:
        made = _as_non_leaf(made)
    if node.get("parameter") is True:
        made = torch.nn.Parameter(made.detach(), made.requires_grad)
    elif "class" in node:
        made = _in_class(decoder, node, made)
    decoder.tensors[node["i"]] = made
    decoder.made(node, made)
    read_state(decoder, node, made)
    return made


def _as_non_leaf(leaf: torch.Tensor) -> torch.Tensor:
    """Return a copy that autograd made, for the model may change it in place, unlike a leaf."""
    with torch.enable_grad():
        copy = leaf.clone()
        if copy.stride() == leaf.stride():
            return copy
        length = extent(leaf.size(), leaf.stride())
        flat = leaf.as_strided((length,), (1,), leaf.storage_offset()).clone()
        return flat.as_strided(leaf.size(), leaf.stride(), 0)


def _in_class(decoder: Decoder, node: Tagged, made: torch.Tensor) -> torch.Tensor:
    kind: Any = decoder.resolve_class(node["class"])
    if not issubclass(kind, torch.Tensor):
        raise CannotRebuildError(f"{node['class']} is no tensor any more")
    with torch._C.DisableTorchFunction():
        if not made.is_leaf:
            dressed: torch.Tensor = made.as_subclass(kind)
            return dressed
        twin: torch.Tensor = torch.Tensor._make_subclass(kind, made.detach(), made.requires_grad)
        return twin


def _read_parameter(decoder: Decoder, node: Tagged) -> Any:
    """A parameter or buffer of a module that was rebuilt."""
    path, _, leaf = node["name"].rpartition(".")
    if not path:
        root, _, leaf = node["name"].rpartition(":")
        path = f"{root}:"
    module = decoder.modules.get(path)
    if module is not None:
        for space in (module._parameters, module._buffers):
            if space.get(leaf) is not None:
                return space[leaf]
    raise CannotRebuildError(f"no parameter or buffer {node['name']!r} in what was rebuilt")


WRITERS: Mapping[type, Callable[[Any, Any, str], Node]] = {
    torch.Tensor: write_tensor,
    torch.nn.Parameter: write_tensor,
}

BASES: Mapping[type, Callable[[Any, Any, str], Node]] = {torch.Tensor: write_tensor}

READERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "tensor": read_tensor,
    "parameter_ref": _read_parameter,
    **SPECIAL_READERS,
}
