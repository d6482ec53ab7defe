"""Does a JSON value fit a schema? The part of JSON Schema that ours is written in, nothing more.

Differs from the standard in one point: 1.0 is not an integer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Check: TypeAlias = Callable[[Any], "str | None"]
"""Returns None, or what is wrong: the path inside the value, a colon, one sentence."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}

_KEYWORDS: Final = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "items", "maxItems"),
        *("enum", "const", "pattern", "minimum", "maximum", "anyOf"),
        *("$ref", "$defs", "$schema", "title", "description"),
    )
)


def compile_schema(schema: dict[str, Any]) -> Check:
    """Return the check for `schema`; raises `ValueError` for a keyword it does not know."""
    return _Compiler(schema.get("$defs", {})).check(schema)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Compiler:
    """Turns schemas into closures, once per definition."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._compiled: dict[str, Check] = {}

    def check(self, schema: dict[str, Any]) -> Check:
        if unknown := schema.keys() - _KEYWORDS:
            raise ValueError(f"keywords {sorted(unknown)} are not known here")
        checks = [made for part in (_value, _range, _array) if (made := part(self, schema))]
        if "properties" in schema or "additionalProperties" in schema:
            checks.append(_object(self, schema))
        if "anyOf" in schema:
            checks.append(_any(self, schema))
        if "$ref" in schema:
            checks.append(self._reference(schema["$ref"]))
        return checks[0] if len(checks) == 1 else _all(checks)

    def _reference(self, reference: str) -> Check:
        """Follow a reference when it is first used, since definitions may name each other."""
        name = reference.removeprefix("#/$defs/")
        definition = self._definitions[name]

        def check(value: Any) -> str | None:
            made = self._compiled.get(name)
            if made is None:
                made = self._compiled[name] = self.check(definition)
            return made(value)

        return check


def _all(checks: list[Check]) -> Check:
    def check(value: Any) -> str | None:
        for part in checks:
            problem = part(value)
            if problem is not None:
                return problem
        return None

    return check


def _value(_: _Compiler, schema: dict[str, Any]) -> Check | None:
    """Check `type`, `enum`, `const`: exact types, so that True is not 1."""
    checks: list[Check] = []
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        checks.append(_typed(frozenset(kind for name in names for kind in _TYPES[name]), names))
    if "enum" in schema or "const" in schema:
        allowed = [(type(v), v) for v in schema.get("enum", [schema.get("const")])]
        checks.append(_one_of(allowed))
    return _all(checks) if checks else None


def _typed(types: frozenset[type], names: list[str]) -> Check:
    def check(value: Any) -> str | None:
        if type(value) in types:
            return None
        return f": expected {' or '.join(names)}, got {_shown(value)}"

    return check


def _one_of(allowed: list[tuple[type, Any]]) -> Check:
    def check(value: Any) -> str | None:
        if (type(value), value) in allowed:
            return None
        return f": expected one of {_shown([v for _, v in allowed])}, got {_shown(value)}"

    return check


def _range(_: _Compiler, schema: dict[str, Any]) -> Check | None:
    """Check `minimum` and `maximum` of numbers, `pattern` of strings."""
    low, high = schema.get("minimum"), schema.get("maximum")
    pattern = re.compile(schema["pattern"].replace("$", r"\Z")) if "pattern" in schema else None
    if low is None and high is None and pattern is None:
        return None

    def check(value: Any) -> str | None:
        if type(value) is str:
            if pattern is not None and pattern.search(value) is None:
                return f": {_shown(value)} does not match {schema['pattern']}"
        elif type(value) in (int, float) and (
            (low is not None and value < low) or (high is not None and value > high)
        ):
            return f": {_shown(value)} is not between {low} and {high}"
        return None

    return check


def _array(compiler: _Compiler, schema: dict[str, Any]) -> Check | None:
    """Check `items` and `maxItems`."""
    if "items" not in schema:
        return None
    item_check = compiler.check(schema["items"])
    most = schema.get("maxItems")

    def check(value: Any) -> str | None:
        if type(value) is not list:
            return None
        if most is not None and len(value) > most:
            return f": {len(value)} items, at most {most} are allowed"
        for n, item in enumerate(value):
            problem = item_check(item)
            if problem is not None:
                return f"[{n}]{problem}"
        return None

    return check


def _object(compiler: _Compiler, schema: dict[str, Any]) -> Check:
    """Check `properties`, `required` and `additionalProperties`."""
    known = {name: compiler.check(sub) for name, sub in schema.get("properties", {}).items()}
    required = schema.get("required", [])
    rest = schema.get("additionalProperties", True)
    rest_check = compiler.check(rest) if isinstance(rest, dict) else None

    def check(value: Any) -> str | None:
        if type(value) is not dict:
            return None
        for name in required:
            if name not in value:
                return f": {name!r} is missing"
        for name, item in value.items():
            part = known.get(name, rest_check)
            if part is None and rest is False:
                return f": {_shown(name)} is not known"
            problem = part(item) if part is not None else None
            if problem is not None:
                return f".{name}{problem}"
        return None

    return check


def _any(compiler: _Compiler, schema: dict[str, Any]) -> Check:
    """Check `anyOf`; where nothing fits, tell the complaint that got furthest."""
    checks = [compiler.check(sub) for sub in schema["anyOf"]]

    def check(value: Any) -> str | None:
        problems: list[str] = []
        for part in checks:
            problem = part(value)
            if problem is None:
                return None
            problems.append(problem)
        return max(reversed(problems), key=lambda text: text.find(":"))

    return check
