"""Loads classes and functions out of a script without running the script."""

from __future__ import annotations

import ast
import linecache
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import schemas
from flightrec.errors import CodeMissingError
from flightrec.script_names import bound_names, filled_name, used_names
from flightrec.script_rules import ScriptRules, soft_slots
from flightrec.source import text_hash
from flightrec.tree.nodes import Placeholder

if TYPE_CHECKING:
    from collections.abc import Iterable

ADVICE = "pass the model with --model package.module:factory"


def load_script(
    text: str, *, filename: str, wanted: Iterable[str], package: str = ""
) -> ModuleType:
    """Return a module in which the top-level names `wanted` of a script are defined.

    Only what they need is executed: imports, functions, classes and constants, judged by their
    syntax (see `ScriptRules`). Names that only a function body needs, class attributes and
    defaults of arguments stand as `Placeholder` where they come from anything else. The module
    is registered in `sys.modules` under a name of its own, so that a guard on `__name__` stays
    shut.
    Raises `CodeMissingError` where a wanted name is not there or cannot be defined like this.
    """
    try:
        tree = ast.parse(text, filename)
    except (SyntaxError, ValueError) as fault:
        raise CodeMissingError(f"{filename} is not Python: {fault}; {ADVICE}") from fault
    script = _Script(tree, filename)
    body = script.select(list(wanted))
    module = ModuleType(f"__recorded_main_{text_hash(text)[:12]}")
    module.__file__ = filename
    module.__package__ = package
    for name, why in script.missing.items():
        setattr(module, name, Placeholder(f"{name} of {filename}", why))
    lines = text.splitlines(keepends=True)
    linecache.cache[filename] = (len(text), None, lines, filename)
    sys.modules[module.__name__] = module
    try:
        tree = ast.fix_missing_locations(ast.Module(body=body, type_ignores=[]))
        exec(compile(tree, filename, "exec"), vars(module))
    except Exception as fault:
        del sys.modules[module.__name__]
        raise CodeMissingError(f"{filename} cannot be loaded: {fault!r}; {ADVICE}") from fault
    return module


def loose_statement(text: str) -> str | None:
    """Say which top-level statement of a file does more than define, or None.

    This is what keeps a script that lies somewhere below a trusted folder from being run.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as fault:
        return str(fault)
    rules = _rules(tree)
    for statement in tree.body:
        if isinstance(statement, ast.If) and _is_guard(statement):
            continue
        if (why := rules.problem(statement)) is not None:
            return why
    return None


def _rules(tree: ast.Module) -> ScriptRules:
    lists = schemas.load("trusted.json")
    return ScriptRules(
        tree,
        calls=frozenset(lists["script_calls"]),
        methods=frozenset(lists["script_methods"]),
    )


def _is_guard(statement: ast.If) -> bool:
    names = {node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)}
    return names == {"__name__"} and isinstance(statement.test, ast.Compare)


class _Script:
    """Finds the statements that given names need, in the order in which they stand."""

    def __init__(self, tree: ast.Module, filename: str) -> None:
        self._filename = filename
        self._rules = _rules(tree)
        self._body = self._rules.without_noise(tree.body)
        self._binders: dict[str, list[int]] = {}
        self._verdicts: dict[str, str | None] = {}
        self.missing: dict[str, str] = {}
        """Names that were needed only later and stay undefined, with the reason."""

        self.labels: dict[str, str] = {}
        """What stands in the script for those names that are not the script's own."""
        for index, statement in enumerate(self._body):
            for name in bound_names(statement):
                self._binders.setdefault(name, []).append(index)

    def select(self, wanted: list[str]) -> list[ast.stmt]:
        """Return the statements that define `wanted`; raises `CodeMissingError`."""
        chosen: set[int] = set()
        for name in wanted:
            if name not in self._binders and not any(map(_imports_all, self._body)):
                raise CodeMissingError(f"{self._filename} has no {name} any more; {ADVICE}")
            if (why := self._why_not(name)) is not None:
                raise CodeMissingError(f"{self._filename}: {name} needs a run: {why}; {ADVICE}")
        queue = list(wanted)
        for index, statement in enumerate(self._body):
            if _is_setting(statement) and self._rules.problem(statement) is None:
                queue += self._choose(index, chosen)
        seen: set[str] = set()
        while queue:
            name = queue.pop()
            if name in seen:
                continue
            seen.add(name)
            if (why := self._why_not(name)) is not None:
                self.missing[name] = why
                continue
            for index in self._binders.get(name, ()):
                queue += self._choose(index, chosen)
        return [self._body[index] for index in sorted(chosen)]

    def _choose(self, index: int, chosen: set[int]) -> list[str]:
        """Take a statement and return the names that it reads."""
        if index in chosen:
            return []
        chosen.add(index)
        statement = self._body[index]
        return [*used_names(statement, now=True), *used_names(statement, now=False)]

    def _why_not(self, name: str) -> str | None:
        """Say why `name` cannot be defined without running code, None where it can."""
        if name not in self._verdicts:
            self._verdicts[name] = None  # while looking: a cycle is no reason against
            self._verdicts[name] = self._find_reason(name)
        return self._verdicts[name]

    def _soften(self, statement: ast.stmt) -> None:
        """Put placeholders where a definition mentions a value that only a run would give."""
        for holder, key in list(soft_slots(statement)):
            value = holder[key]
            why = self._rules.expression_problem(value)
            reasons = (self._why_not(used) for used in used_names(value, now=True))
            why = why or next(filter(None, reasons), None)
            if why is not None:
                name = f"__missing_{len(self.missing)}__"
                self.missing[name] = why
                self.labels[name] = f"{ast.unparse(value)} of line {value.lineno}"
                holder[key] = ast.copy_location(ast.Name(name, ast.Load()), value)

    def _find_reason(self, name: str) -> str | None:
        for index in self._binders.get(name, ()):
            statement = self._body[index]
            self._soften(statement)
            if (why := self._rules.problem(statement)) is not None:
                return why
            for used in used_names(statement, now=True):
                if (why := self._why_not(used)) is not None:
                    return f"{used} ({why})" if used not in why else why
        return None


def _imports_all(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"


def _is_setting(statement: ast.stmt) -> bool:
    """Does the statement act on all that follows: `__future__`, `import *`, `sys.path`?"""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__" or _imports_all(statement)
    return isinstance(statement, ast.Expr) and filled_name(statement) == "sys"
