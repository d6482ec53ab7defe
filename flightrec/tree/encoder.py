"""Values of any kind into nodes, without running the user's code and without ever raising."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from flightrec.guard import FAULTS, strict
from flightrec.tree import arrays, code, containers, generators, objects, scalars, tensors, views
from flightrec.tree.naming import class_name, mro

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.nodes import Node, Tagged
    from flightrec.tree.table import TensorTable

MAX_DEPTH = 100
"""Containers inside containers before the rest is left out; JSON readers stop not far beyond."""

MAX_ITEMS = 200_000
"""Elements of containers that one encoder takes before the rest is left out."""

MAX_TEXT = 32 << 20
"""Characters of text, and bytes outside tensors, that one encoder takes."""

MAX_NOTES = 200
"""Entries of `not_captured`; the last one then says that there are more."""


def _is_ours(fault: BaseException, meta: Any) -> bool:
    """Was it raised by this package, and not by code of the value that we could not avoid?"""
    if meta.__hash__ is not type.__hash__:  # its class cannot even be looked up
        return False
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or trace.tb_frame.f_globals.get("__name__", "").startswith("flightrec.")


_NOBODY: Mapping[int, str] = MappingProxyType({})


class Encoder:
    """Turns values into nodes; tensors go into a table, and shared objects stay shared.

    What cannot be rebuilt becomes `{"$": "missing", "what", "why"}` and is listed in
    `not_captured`. Objects are kept alive as long as the encoder, so that identities hold.
    Subclasses may extend `writers` and `bases`, and override `encode_module`.
    """

    writers: ClassVar[Mapping[type, Callable[[Any, Any, str], Node]]] = {
        **scalars.WRITERS,
        **containers.WRITERS,
        **views.WRITERS,
        **arrays.WRITERS,
        **tensors.WRITERS,
        **generators.WRITERS,
        **code.WRITERS,
    }
    """How values of exactly this type are written."""

    bases: ClassVar[Mapping[type, Callable[[Any, Any, str], Node]]] = {
        Enum: code.write_enum,
        torch.nn.Module: lambda encoder, value, name: encoder.encode_module(value, name),
        **tensors.BASES,
        **arrays.BASES,
        **code.BASES,
        object: objects.write_object,
    }
    """How values of subclasses are written; the first type found in the `__mro__` decides."""

    def __init__(
        self,
        table: TensorTable,
        *,
        modules: Mapping[int, str] = _NOBODY,
        parameters: Mapping[int, str] = _NOBODY,
        role: str = "value",
        max_items: int = MAX_ITEMS,
        max_text: int = MAX_TEXT,
    ) -> None:
        """Write tensors to `table` under `role`.

        `modules` and `parameters` name what the incident already holds: `id(module)` and
        `id(tensor)` to `"root:dotted.name"`; those become references.
        """
        self.table = table
        self.modules = modules
        self.parameters = parameters
        self.role = role
        self.not_captured: list[dict[str, str]] = []
        self.items_left = max_items
        self.text_left = max_text
        self._depth = 0
        self._shared = 0
        self._memo: dict[int, tuple[Tagged, Any]] = {}
        self._by_type: dict[type, Callable[[Any, Any, str], Node]] = dict(self.writers)

    def encode(self, value: Any, name: str = "") -> Node:
        """Return the node of a value; `name` says where it was found, as in `args[0]['x']`."""
        kind = type(value)
        if value is None or kind is bool:
            return value  # type: ignore[no-any-return]
        seen = self._memo.get(id(value))
        if seen is not None:
            return self._reference(seen[0])
        self._depth += 1
        try:
            write = self._by_type.get(kind)
            if write is None:
                write = self._by_type[kind] = self._writer(kind)
            if self._depth > MAX_DEPTH:
                return self.missing(value, name, f"nested more than {MAX_DEPTH} levels deep")
            return write(self, value, name)
        except RecursionError:
            return self.missing(value, name, "nested too deeply for the stack that was left")
        except Exception as fault:
            if _is_ours(fault, type(kind)):
                FAULTS["tree"] += 1
                if strict():
                    raise
            return self.missing(value, name, f"{type(fault).__name__} while it was read")
        finally:
            self._depth -= 1

    def encode_module(self, module: torch.nn.Module, name: str = "") -> Node:
        """Return the node of a module: a reference where `modules` names it, else missing."""
        known = self.modules.get(id(module))
        if known is not None:
            return {"$": "module_ref", "name": known}
        return self.missing(module, name, "a module that is not part of a recorded one")

    def _writer(self, kind: type) -> Callable[[Any, Any, str], Node]:
        chain = mro(kind)
        return next(write for base, write in self.bases.items() if base in chain)

    def open(self, value: Any, tag: str) -> Tagged:
        """Return an empty node for `value`, known from now on, so that cycles find it."""
        node: Tagged = {"$": tag}
        self._memo[id(value)] = (node, value)
        return node

    def forget(self, value: Any) -> None:
        """Write an equal node again if `value` comes again: it has no identity worth keeping."""
        self._memo.pop(id(value), None)

    def _reference(self, node: Tagged) -> Node:
        if node["$"] in ("missing", "module_ref"):
            return node
        number = node.get("id")
        if number is None:
            number = node["id"] = self._shared
            self._shared += 1
        return {"$": "ref", "to": number}

    def missing(self, value: Any, name: str, why: str) -> Node:
        """Return the node of a value that cannot be rebuilt, and note it in `not_captured`."""
        kind = class_name(type(value)).replace(":", ".")
        what = f"{name}: {kind}" if name else kind
        if len(self.not_captured) < MAX_NOTES:
            self.not_captured.append({"what": what, "why": why})
        elif len(self.not_captured) == MAX_NOTES:
            self.not_captured.append({"what": "more values", "why": "the list is full"})
        seen = self._memo.get(id(value))
        node: Tagged = {} if seen is None else seen[0]
        known = node.get("id")
        node.clear()
        node.update({"$": "missing", "what": what, "why": why})
        if known is not None:
            node["id"] = known
        elif seen is None:
            self._memo[id(value)] = (node, value)
        return node

    def afford(self, items: int = 0, text: int = 0) -> str | None:
        """Take elements and bytes from the budget; return why not where it is used up."""
        if items > self.items_left:
            return f"{items} elements, {self.items_left} left in the budget"
        if text > self.text_left:
            return f"{text} bytes of text, {self.text_left} left in the budget"
        self.items_left -= items
        self.text_left -= text
        return None
