"""Nodes back into values; names of code go to a resolver that knows whom to trust."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch

from flightrec.errors import CorruptIncidentError, FlightrecError
from flightrec.tree import (
    arrays,
    code,
    containers,
    generators,
    local,
    native,
    objects,
    scalars,
    tensors,
    views,
)
from flightrec.tree.holes import Hole
from flightrec.tree.nodes import Placeholder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.nodes import Node, Tagged

_NOBODY: Mapping[str, torch.nn.Module] = MappingProxyType({})

_LEFT_OUT = Placeholder("a shared object", "the value that held it was left out")


class Resolver(Protocol):
    """Turns names into code, or refuses."""

    def resolve_class(self, module: str, qualname: str) -> type:
        """Return the class; raises `UntrustedNameError` or `CodeMissingError`."""
        ...

    def resolve_function(self, module: str, qualname: str) -> Callable[..., Any]:
        """Return the function; raises `UntrustedNameError` or `CodeMissingError`."""
        ...


class Decoder:
    """Turns the nodes of one `Encoder` back into values; shared objects are shared again.

    Subclasses may extend `readers` and override `decode_module`. Whatever is wrong with a node
    raises `CorruptIncidentError`; code that was not trusted, is gone or has changed raises
    `UntrustedNameError`, `CodeMissingError` or `CannotRebuildError`.
    """

    readers: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {
        "ref": lambda decoder, node: decoder.shared(node["to"]),
        "missing": lambda _decoder, node: Placeholder(str(node["what"]), str(node["why"])),
        "module_ref": lambda decoder, node: decoder.decode_module(node),
        **scalars.READERS,
        **containers.READERS,
        **objects.READERS,
        **local.READERS,
        **native.READERS,
        **views.READERS,
        **arrays.READERS,
        **tensors.READERS,
        **generators.READERS,
        **code.READERS,
    }
    """How nodes are read, by tag."""

    def __init__(
        self,
        tensors: Callable[[int], torch.Tensor],
        resolver: Resolver,
        modules: Mapping[str, torch.nn.Module] = _NOBODY,
    ) -> None:
        """Take tensors by index, code from `resolver`, modules by `"root:dotted.name"`."""
        self._tensors = tensors
        self._resolver = resolver
        self.modules = modules
        self._made: dict[Any, Any] = {}
        self._patches: list[tuple[Hole, Callable[[Any], object]]] = []
        self._depth = 0
        self.local: dict[tuple[str, tuple[str, ...]], type] = {}
        self.tensors: dict[int, torch.Tensor] = {}

    def decode(self, node: Node) -> Any:
        """Return the value of a node."""
        if not isinstance(node, (dict, list)):
            return node
        self._depth += 1
        try:
            value = self._read(node)
            if self._depth == 1:
                value = self._patched(value)
        except (FlightrecError, torch.OutOfMemoryError):
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as fault:
            kind = node.get("$") if isinstance(node, dict) else "list"
            raise CorruptIncidentError(f"bad node {str(kind)[:40]!r}: {fault!r}") from fault
        finally:
            self._depth -= 1
        return value

    def _read(self, node: dict[str, Any] | list[Any]) -> Any:
        if isinstance(node, list):
            raise CorruptIncidentError("a bare list is not a node")
        read = self.readers.get(node["$"])
        if read is None:
            raise CorruptIncidentError(f"unknown tag {str(node['$'])[:40]!r}")
        return self.made(node, read(self, node))

    def _patched(self, value: Any) -> Any:
        patches, self._patches = self._patches, []
        for hole, put in patches:
            put(hole.fill())
        return value.fill() if type(value) is Hole else value

    def made(self, node: Tagged, value: Any) -> Any:
        """Let references to this node find `value` from now on; return it."""
        if "id" in node:
            self._made[node["id"]] = value
        return value

    def shared(self, number: int) -> Any:
        """Return what a reference means; a hole while it is still being made.

        A placeholder in the end where nothing made it: what held it was left out.
        """
        if number in self._made:
            return self._made[number]
        return Hole(lambda: self._finally(number))

    def _finally(self, number: int) -> Any:
        value = self._made.get(number, _LEFT_OUT)
        return value.fill() if type(value) is Hole else value

    def patch(self, hole: Hole, put: Callable[[Any], object]) -> None:
        """Call `put` with the value of a hole, when everything else has been made."""
        self._patches.append((hole, put))

    def tensor(self, node: Tagged) -> torch.Tensor:
        """Return the tensor that a node of the tag `tensor` points to, without its extras."""
        index = node["i"]
        if type(index) is not int:
            raise CorruptIncidentError(f"tensor index {index!r}")
        return self._tensors(index)

    def resolve_class(self, title: str) -> type:
        """Return a class by `module:qualname`."""
        module, _, qualname = title.partition(":")
        return self._resolver.resolve_class(module, qualname)

    def resolve_function(self, title: str) -> Callable[..., Any]:
        """Return a function by `module:qualname`."""
        module, _, qualname = title.partition(":")
        return self._resolver.resolve_function(module, qualname)

    def decode_module(self, node: Tagged) -> Any:
        """Return the module that a reference names, or a placeholder where there is none."""
        known = self.modules.get(node["name"])
        if known is None:
            return Placeholder(f"module {node['name']!r}", "it was not rebuilt")
        return known
