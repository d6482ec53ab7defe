"""Which names a statement binds and which it reads, now or only when a function runs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_OWN_SCOPE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FILLING_METHODS = frozenset({"append", "extend", "insert", "update", "add", "setdefault"})


def root_name(node: ast.expr) -> str | None:
    """Return `a` for `a.b[c].d`, None where the expression does not start with a name."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def filled_name(statement: ast.Expr) -> str | None:
    """Return `a` for a statement such as `a.append(...)` that fills a container."""
    call = statement.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    return root_name(call.func.value) if call.func.attr in _FILLING_METHODS else None


def bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds or changes at its own level, not inside functions."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, _OWN_SCOPE):
        return
    if isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        name = None if isinstance(node.ctx, ast.Load) else root_name(node)
        if name is not None:
            yield name
    elif isinstance(node, ast.Expr) and (name := filled_name(node)):
        yield name
    for child in ast.iter_child_nodes(node):
        yield from bound_names(child)


def used_names(node: ast.AST, *, now: bool) -> Iterator[str]:
    """Yield the names read when `node` is executed or, with `now` False, only later.

    Later means the bodies of functions and lambdas, and annotations, which may name what is
    not there.
    """
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and now:
        yield node.id
    for field, value in ast.iter_fields(node):
        is_later = field in ("annotation", "returns") or (
            field == "body" and isinstance(node, (*FUNCTIONS, ast.Lambda))
        )
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            if not is_later:
                yield from used_names(child, now=now)
            elif not now:
                yield from all_names(child)


def all_names(node: ast.AST) -> Iterator[str]:
    """Yield every name that is read anywhere inside `node`."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            yield child.id
