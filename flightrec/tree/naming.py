"""Names of classes and functions: what they say of themselves, and whether it is true here."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_mro = type.__dict__["__mro__"].__get__
_module = type.__dict__["__module__"].__get__
_qualname = type.__dict__["__qualname__"].__get__

FUNCTION_HOMES = (
    "torch.nn.functional",
    "torch",
    "torch.special",
    "torch.linalg",
    "torch.fft",
    "torch._C._nn",
)
"""Where built-in functions that do not know their module are looked for, in this order."""


_LOOSE: dict[str, Mapping[str, Any]] = {}
"""Globals of modules that run without being in `sys.modules`, as `exec_module` alone makes them;
known from the functions of the classes that were met."""

_IMMUTABLE_OR_CLOSED = (1 << 7) | (1 << 8)
"""Py_TPFLAGS_DISALLOW_INSTANTIATION and Py_TPFLAGS_IMMUTABLETYPE: types written in C."""

_HEAP = 1 << 9
"""Py_TPFLAGS_HEAPTYPE; types without it are written in C."""


def is_native(kind: type) -> bool:
    """Is a class written in C?"""
    flags = kind.__flags__
    return not flags & _HEAP or bool(flags & _IMMUTABLE_OR_CLOSED)


def mro(kind: type) -> tuple[type, ...]:
    """Return the method resolution order without asking the metaclass."""
    chain: tuple[type, ...] = _mro(kind)
    return chain


def class_name(kind: type) -> str:
    """Return `module:qualname` as the class has it, importable or not."""
    module = _module(kind)
    return f"{module if isinstance(module, str) else '?'}:{_qualname(kind)}"


def globals_of(module: str) -> Mapping[str, Any]:
    """Return the globals of a module that is loaded, registered or not; empty if it is not."""
    loaded = sys.modules.get(module)
    return vars(loaded) if loaded is not None else _LOOSE.get(module, {})


def find(module: str, qualname: str) -> Any:
    """Return what a name means in the modules that are loaded, or None; imports nothing."""
    first, *rest = qualname.split(".")
    found: Any = globals_of(module).get(first)
    for part in rest:
        if found is None:
            return None
        space = _mro_space(found) if isinstance(found, type) else (vars(found),)
        found = next((names[part] for names in space if part in names), None)
    return found


def _meet(module: str, functions: Iterable[Any]) -> None:
    """Learn the globals of a module that is not registered from a function defined in it.

    The newest counts: a file may have been run more than once under one name.
    """
    if module in sys.modules:
        return
    for value in functions:
        function = getattr(value, "__func__", value)
        if type(function) is FunctionType and function.__globals__.get("__name__") == module:
            _LOOSE[module] = function.__globals__
            return


def _mro_space(kind: type) -> tuple[Any, ...]:
    return tuple(vars(base) for base in mro(kind))


def importable_class(kind: type) -> str | None:
    """Return `module:qualname` of a class that is found under that name, else None."""
    module, qualname = _module(kind), _qualname(kind)
    if isinstance(module, str):
        _meet(module, vars(kind).values())
    if not isinstance(module, str) or find(module, qualname) is not kind:
        return None
    return f"{module}:{qualname}"


def importable_function(function: Any) -> str | None:
    """Return `module:qualname` of a function that is found under that name, else None."""
    owner = getattr(function, "__objclass__", None)  # of a method that is written in C
    if isinstance(owner, type):
        title = importable_class(owner)
        return None if title is None else f"{title}.{function.__name__}"
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if not isinstance(qualname, str):
        return None
    if isinstance(module, str):
        _meet(module, (function,))
    if isinstance(module, str) and _is(find(module, qualname), function):
        return f"{module}:{qualname}"
    # `torch.nn.functional.max_pool2d` has its name only in `__name__`
    for short in (qualname.rpartition(".")[2], str(getattr(function, "__name__", ""))):
        for home in FUNCTION_HOMES:
            if vars(sys.modules[home]).get(short) is function:
                return f"{home}:{short}"
    return None


def _is(found: Any, function: Any) -> bool:
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    return found is function
