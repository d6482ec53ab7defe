"""To which step of an incident does a tensor belong?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def steps_of_tensors(manifest: Mapping[str, Any]) -> dict[int, int]:
    """Return index of a tensor -> step whose inputs, outputs or gradients it is part of.

    Parameters and buffers of the model belong to no step, also where a call had the same. What
    several steps share belongs to the newest of them.
    """
    found: dict[int, int] = {}
    for segment in (*manifest["controls"], manifest["segment"]):
        found |= dict.fromkeys(_indices(segment), segment["step"])
    weights = _indices(manifest["model"]["roots"])
    return {index: step for index, step in found.items() if index not in weights}


def _indices(part: Any) -> set[int]:
    """Return every tensor that a part of a manifest names, in whichever way."""
    found: set[int] = set()
    waiting: list[Any] = [part]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting.extend(node.values())
            found.update(_named_by(node))
    return found


def _named_by(node: Mapping[str, Any]) -> list[int]:
    """Return the tensors that one JSON object names itself: a node, an entry, or buffers."""
    if node.get("$") == "tensor":
        return [node["i"]]
    buffers = node.get("buffers")
    named = [*buffers.values()] if isinstance(buffers, dict) else [node.get("tensor")]
    return [index for index in named if type(index) is int]
