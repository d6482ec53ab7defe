"""Names that an incident refers to, and which of them no option can ever allow."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from flightrec.types import Json


class Role(StrEnum):
    """What an incident wants to do with a name."""

    MODULE = "module"
    """Make an instance, which must be an `nn.Module`."""

    CLASS = "class"
    """Make an instance of a value class, or hold the class itself."""

    FUNCTION = "function"
    """Hold it, where code may call it."""


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """A name that an incident refers to, as `package.module:Qualified.Name`."""

    role: Role
    name: str

    @property
    def module(self) -> str:
        """The part before the colon."""
        return self.name.partition(":")[0]

    @property
    def qualname(self) -> str:
        """The part after the colon."""
        return self.name.partition(":")[2]

    @property
    def package(self) -> str:
        """The first part of the module's name."""
        return self.name.partition(":")[0].partition(".")[0]


@functools.cache
def listed(kind: str) -> frozenset[str]:
    """Return one of the lists of names in schemas/trusted.json."""
    return frozenset(schemas.load("trusted.json")[kind])


@functools.cache
def listed_functions() -> Mapping[str, Callable[..., Any]]:
    """Return the functions of torch and the standard library that are on the list.

    By the name under which they are listed, and by the one they have themselves.
    """
    table: dict[str, Callable[..., Any]] = {}
    for name in sorted(listed("functions")):
        module, _, attribute = name.partition(":")
        function = getattr(sys.modules.get(module), attribute, None)
        if function is None:
            continue  # of a package that is not here, or of a newer torch
        table[name] = function
        own = f"{function.__module__}:{function.__qualname__}"
        if "<" not in own:
            table[own] = function
    return table


def is_named(module: str, names: Iterable[str]) -> bool:
    """Is `module` one of `names` or inside one of them?"""
    return any(module == name or module.startswith(f"{name}.") for name in names)


def is_name(text: str) -> bool:
    """Is it a dotted name, of a module or inside one?"""
    return all(part.isidentifier() for part in text.split("."))


@functools.lru_cache(maxsize=4096)
def never(need: Need) -> str | None:
    """Say why no option lets an incident use this name, or None where one might.

    The recording side asks this too, so that nothing is written that could not be read.
    """
    if not is_name(need.module) or not is_name(need.qualname):
        return "it is not a name that can be imported"
    if is_listed(need):
        return None
    module, package = need.module, need.package
    if package in sys.stdlib_module_names or package in listed("listed_only"):
        return f"{package} is not trusted beyond the names in schemas/trusted.json"
    if is_named(module, listed("denied_modules")):
        return "its module is one that an incident may never use"
    if need.role is not Role.FUNCTION or is_forward(need):
        return None
    if package in listed("listed_functions_only"):
        return f"functions of {package} must be listed in schemas/trusted.json"
    return None


def is_forward(need: Need) -> bool:
    """Is the function named as the forward of some class (which must then be a module's)?"""
    return need.role is Role.FUNCTION and need.qualname.endswith(".forward")


def is_listed(need: Need) -> bool:
    """Is the name one of those that any incident may use?"""
    if need.role is Role.FUNCTION:
        return need.name in listed_functions() or need.name in listed("functions")
    return need.name in listed("value_classes")


def names_in(node: Mapping[str, Any]) -> list[Need]:
    """Return the classes and functions that one node itself names, not those inside it."""
    tag = node.get("$")
    found: list[Need] = []
    if tag == "torch_enum":  # looked up by torch's own list, not by name
        return found
    role = Role.MODULE if tag == "module" else Role.CLASS
    if isinstance(node.get("class"), str):
        found.append(Need(role, node["class"]))
    if isinstance(node.get("function"), str):
        found.append(Need(Role.FUNCTION, node["function"]))
    if tag in ("class", "function"):
        found.append(Need(Role.CLASS if tag == "class" else Role.FUNCTION, str(node.get("name"))))
    return found


def needs_of(node: Json) -> set[Need]:
    """Return every name inside a node, without recursion, since nodes may be nested deeply."""
    found: set[Need] = set()
    todo: list[Any] = [node]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            found.update(names_in(item))
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
    return found
