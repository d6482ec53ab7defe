"""Which top-level statements of a script only define something, judged by their syntax alone."""

from __future__ import annotations

import ast
import builtins
import re
from typing import TYPE_CHECKING, Any

from flightrec.script_names import FUNCTIONS, all_names, bound_names, filled_name, root_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Starred,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.comprehension,
    ast.keyword,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)

_RECORDS = frozenset({"dataclasses.dataclass", "typing.NamedTuple", "typing_extensions.NamedTuple"})

_TORCH_MODULE = re.compile(r"torch\.nn\.[A-Z]\w+")

# Hooks by which defining one class runs code of another.
_CLASS_HOOKS = frozenset({"__init_subclass__", "__set_name__", "__prepare__", "__class_getitem__"})


def soft_slots(node: ast.AST) -> Iterator[tuple[Any, str | int]]:
    """Yield places, as holder and key, whose values a definition can do without at first.

    These are values of class attributes and defaults of arguments: where one cannot be had, the
    class can still be made, and only who looks at it has to be told.
    """
    if isinstance(node, FUNCTIONS):
        for defaults in (node.args.defaults, node.args.kw_defaults):
            yield from ((defaults, i) for i, value in enumerate(defaults) if value is not None)
    elif isinstance(node, ast.ClassDef):
        for child in node.body:
            if isinstance(child, ast.Assign | ast.AnnAssign) and child.value is not None:
                yield vars(child), "value"
            else:
                yield from soft_slots(child)


class ScriptRules:
    """Judges the statements of one script; every answer is None or the reason against."""

    def __init__(self, tree: ast.Module, *, calls: frozenset[str], methods: frozenset[str]) -> None:
        """Prepare for `tree`.

        `calls` are dotted names that may be called while loading, `methods` names of methods
        that only look at their object.
        """
        self._calls = calls
        self._methods = methods
        self._imported = dict(_imports(tree))
        self._local = {
            node.name: node for node in tree.body if isinstance(node, (*FUNCTIONS, ast.ClassDef))
        }

    def problem(self, node: ast.AST) -> str | None:
        """Say why this statement may not run, or None where it only defines something."""
        return next(self._statement(node), None)

    def expression_problem(self, node: ast.expr) -> str | None:
        """Say why this expression may not be evaluated, or None where it is a constant."""
        return next(self._expressions(node), None)

    def is_noise(self, node: ast.AST) -> bool:
        """Can the statement be left out, since it binds nothing that anyone could need?

        Setting attributes of an imported module is noise too; adding to `sys.path` is not.
        """
        if isinstance(node, (ast.Import, ast.ImportFrom, *FUNCTIONS, ast.ClassDef)):
            return False
        names = set(bound_names(node))
        if not names <= set(self._imported):
            return False
        if isinstance(node, ast.If | ast.Try) or any(map(_rebinds, ast.walk(node))):
            return not names
        return not (names and isinstance(node, ast.Expr) and self._is_harmless(node))

    def without_noise(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a block that bind something, also inside `if` and `try`."""
        kept = [statement for statement in body if not self.is_noise(statement)]
        for statement in kept:
            if not isinstance(statement, ast.If | ast.Try):
                continue
            for name in ("body", "orelse", "finalbody"):
                inner = self.without_noise(getattr(statement, name, []))
                setattr(statement, name, inner or ([ast.Pass()] if name == "body" else []))
            for handler in getattr(statement, "handlers", []):
                handler.body = self.without_noise(handler.body) or [ast.Pass()]
        return kept

    def _statement(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Global | ast.Delete):
            return
        if isinstance(node, FUNCTIONS):
            yield from self._function(node)
        elif isinstance(node, ast.ClassDef):
            yield from self._class(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from self._expressions(node.value)
        elif isinstance(node, ast.If):
            yield from self._expressions(node.test)
            if any(name == "__name__" for name in all_names(node.test)):
                yield "runs only as a script"
            yield from self._block(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from self._block(node.body + node.orelse + node.finalbody)
            for handler in node.handlers:
                yield from self._block(handler.body)
        elif isinstance(node, ast.Expr) and self._is_harmless(node):
            return
        else:
            yield f"line {getattr(node, 'lineno', '?')} runs code"

    def _is_harmless(self, node: ast.Expr) -> bool:
        if _is_constant(node):
            return True
        call = node.value
        if not isinstance(call, ast.Call) or any(self._expressions(*_arguments(call))):
            return False
        name = filled_name(node)
        return self._dotted(call.func) in self._calls or (
            name is not None and name not in self._imported
        )

    def _block(self, body: list[ast.stmt]) -> Iterator[str]:
        for child in body:
            if not self.is_noise(child):
                yield from self._statement(child)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        for decorator in node.decorator_list:
            yield from self._decorator(decorator)
        arguments = node.args
        yield from self._expressions(*arguments.defaults, *arguments.kw_defaults)

    def _class(self, node: ast.ClassDef) -> Iterator[str]:
        for decorator in node.decorator_list:
            yield from self._decorator(decorator)
        yield from self._expressions(*node.bases)
        for keyword in node.keywords:
            if keyword.arg == "metaclass" and root_name(keyword.value) not in self._imported:
                yield f"class {node.name} has a metaclass of its own"
            yield from self._expressions(keyword.value)
        for child in node.body:
            if isinstance(child, FUNCTIONS) and child.name in _CLASS_HOOKS:
                yield f"class {node.name} defines {child.name}"
            yield from self._statement(child)

    def _decorator(self, node: ast.expr, *, local: bool = True) -> Iterator[str]:
        target = node.func if isinstance(node, ast.Call) else node
        if isinstance(node, ast.Call):
            yield from self._expressions(*_arguments(node))
        root = root_name(target) or ""
        if isinstance(target, ast.Attribute) and target.attr in ("setter", "deleter"):
            return
        if root in self._imported or (root not in self._local and hasattr(builtins, root)):
            return
        mine = self._local.get(root) if local else None
        if not self._only_wraps(mine, called=isinstance(node, ast.Call)):
            yield f"line {node.lineno} has a decorator that runs code of the script"

    def _only_wraps(self, node: ast.AST | None, *, called: bool) -> bool:
        """Does a decorator only define inner functions, note something down and return?

        With `called` True (`@decorator(...)`) the functions directly inside it run as well.
        """
        if not isinstance(node, FUNCTIONS):
            return False
        for child in node.body:
            if isinstance(child, FUNCTIONS):
                inner = (self._decorator(each, local=False) for each in child.decorator_list)
                if any(map(any, inner)) or (called and not self._only_wraps(child, called=False)):
                    return False
            elif isinstance(child, ast.Return | ast.Assign):
                if any(self._expressions(child.value)):
                    return False
            elif not isinstance(child, ast.Nonlocal) and not _is_constant(child):
                return False
        return True

    def _expressions(self, *nodes: ast.AST | None) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.Lambda):
                yield from self._expressions(*node.args.defaults, *node.args.kw_defaults)
            elif isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, _PLAIN):
                yield from self._expressions(*ast.iter_child_nodes(node))
            elif node is not None:
                yield f"line {getattr(node, 'lineno', '?')} computes something"

    def _call(self, node: ast.Call) -> Iterator[str]:
        yield from self._expressions(*_arguments(node))
        name = self._dotted(node.func)
        if name in self._calls or (name is not None and _TORCH_MODULE.fullmatch(name)):
            return
        if isinstance(node.func, ast.Name) and self._is_record(self._local.get(node.func.id)):
            return
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method in self._methods and root_name(node.func) not in self._imported:
            yield from self._expressions(*ast.iter_child_nodes(node.func))
            return
        yield f"line {node.lineno} calls {name or ast.unparse(node.func)}"

    def _is_record(self, node: ast.AST | None) -> bool:
        """Is this a class of the script whose constructor only fills fields?"""
        if not isinstance(node, ast.ClassDef):
            return False
        own = {child.name for child in node.body if isinstance(child, FUNCTIONS)}
        if own & {"__init__", "__new__", "__post_init__", "_missing_"}:
            return False
        marks = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
        names = {self._dotted(each) for each in (*marks, *node.bases)}
        return bool(names & _RECORDS)

    def _dotted(self, node: ast.expr) -> str | None:
        """Return the full dotted name that `node` means, following the script's imports."""
        if isinstance(node, ast.Name):
            return None if node.id in self._local else self._imported.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            return None if base is None else f"{base}.{node.attr}"
        return None


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield local name and dotted name of everything imported outside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                top = each.name.partition(".")[0]
                yield (each.asname, each.name) if each.asname else (top, top)
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                yield each.asname or each.name, f"{node.module or ''}.{each.name}"


def _rebinds(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)


def _arguments(call: ast.Call) -> list[ast.AST]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
