"""Autograd nodes and the operators that made them, matched while the graph is being built."""

from __future__ import annotations

from typing import Any

import torch

_KEY = "flightrec.op"
"""Entry of a node's metadata that holds the index of its operator."""

DEPTH = 4
"""How many nodes further down the graph a node without entry is looked up."""


class NodeMap:
    """Marks each node with the operator whose result it is the `grad_fn` of.

    A node is seen at the first operator that takes such a result in, or when it leaves a call;
    by then in-place writes, views and custom functions have been given their final node, which
    sequence numbers do not tell. The mark lies in the node's own metadata and goes with it.
    """

    def __init__(self) -> None:
        """Mark the nodes of one scan, with a token that no other scan has."""
        self._token = object()

    def see(self, tensor: torch.Tensor, maker: int) -> None:
        """Mark the node of `tensor`, if it has one without mark, as made by this operator."""
        node: Any = tensor.grad_fn
        if node is None or maker < 0:
            return
        known = node.metadata.get(_KEY)
        if known is None or known[0] is not self._token:
            node.metadata[_KEY] = (self._token, maker)

    def operator(self, node: Any) -> int | None:
        """Return the operator a node belongs to, else the nearest one further down its graph."""
        level = [node]
        for _ in range(DEPTH):
            for each in level:
                known = each.metadata.get(_KEY)
                if known is not None and known[0] is self._token:
                    return int(known[1])
            level = [below for each in level for below, _ in each.next_functions if below]
        return None


def accumulated(node: Any) -> torch.Tensor | None:
    """Return the tensor whose gradient this node adds up, None for other nodes."""
    variable = getattr(node, "variable", None)
    return variable if isinstance(variable, torch.Tensor) else None
