"""The JSON form of a value: numbers in it, placeholders, and tensor indices rewritten.

A node is plain JSON for None, bool, int, str and finite float. Everything else is an object
with the key `"$"`, its tag. A bare JSON list is never a node, and user keys are never JSON keys
(dictionaries are lists of pairs), so that a walk over a node cannot take data for structure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from flightrec.errors import CannotRebuildError, CorruptIncidentError
from flightrec.types import Json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Node: TypeAlias = Json
"""What an `Encoder` makes of a value; the tags are listed in `flightrec.tree`."""

Tagged: TypeAlias = "dict[str, Any]"
"""A node that is a JSON object, with its tag under `"$"`."""

_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def number(x: float) -> Json:
    """Return `x` as strict JSON: itself where it is finite, else `{"$": "float", "v": "nan"}`."""
    value = float(x)
    if math.isfinite(value):
        return value
    return {"$": "float", "v": str(value)}


def parse_number(node: Json) -> float:
    """Read what `number` wrote; raises `CorruptIncidentError` for anything else."""
    if isinstance(node, (int, float)) and not isinstance(node, bool):
        return float(node)
    if isinstance(node, dict) and node.get("$") == "float" and node.get("v") in _NONFINITE:
        return _NONFINITE[node["v"]]
    raise CorruptIncidentError(f"a number was expected, got {str(node)[:80]}")


def rebase(node: Node, index_map: Sequence[int]) -> Node:
    """Return a copy of `node` with each tensor index `i` replaced by `index_map[i]`.

    Works on anything made of JSON lists and objects that has nodes inside; only objects tagged
    `tensor` change. Without recursion, since nodes may be nested deeply.
    """
    root: list[Any] = [node]
    todo: list[list[Any] | dict[str, Any]] = [root]
    while todo:
        holder = todo.pop()
        space: Any = holder
        for key, child in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(child, dict):
                copy: Any = dict(child)
                if copy.get("$") == "tensor":
                    copy["i"] = index_map[copy["i"]]
            elif isinstance(child, list):
                copy = list(child)
            else:
                continue
            space[key] = copy
            todo.append(copy)
    result: Node = root[0]
    return result


def tensor_indices(node: Node) -> Iterator[int]:
    """Yield the index of every tensor inside `node`, in the order in which they appear."""
    todo: list[Any] = [node]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if item.get("$") == "tensor":
                yield item["i"]
            todo.extend(reversed(item.values()))
        elif isinstance(item, list):
            todo.extend(reversed(item))


class Placeholder:
    """Stands for a value that an incident does not hold; raises when it is used.

    It can be held, compared by identity, printed and copied. Reading an attribute, calling it,
    iterating over it, taking its truth and giving it to a torch function raise
    `CannotRebuildError` with what it was and why it is missing.
    """

    __slots__ = ("_what", "_why")

    def __init__(self, what: str, why: str) -> None:
        """Remember what is missing and why, for the message."""
        object.__setattr__(self, "_what", what)
        object.__setattr__(self, "_why", why)

    def __repr__(self) -> str:
        """Say what is missing."""
        return f"<not captured: {_told(self)}>"

    def __copy__(self) -> Placeholder:
        """Return itself: it has no state of its own."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Placeholder:
        """Return itself: it has no state of its own."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy by constructor."""
        return Placeholder, (
            object.__getattribute__(self, "_what"),
            object.__getattribute__(self, "_why"),
        )

    def __getattr__(self, name: str) -> Any:
        """Raise; dunder names are only probed by protocols and are simply not there."""
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        _touched(self)


def _told(placeholder: Placeholder) -> str:
    what = object.__getattribute__(placeholder, "_what")
    return f"{what} ({object.__getattribute__(placeholder, '_why')})"


def _touched(placeholder: Placeholder, *_args: Any, **_kwargs: Any) -> NoReturn:
    raise CannotRebuildError(
        f"this needs a value the incident does not hold: {_told(placeholder)}; "
        f"pass the model with --model package.module:factory"
    )


def _touched_by_torch(
    cls: type[Placeholder],  # noqa: ARG001 - torch passes it
    func: Any,
    types: Any,  # noqa: ARG001 - torch passes it
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> NoReturn:
    for value in (*args, *(kwargs or {}).values()):
        if isinstance(value, Placeholder):
            _touched(value)
    raise CannotRebuildError(f"{func} was given a value the incident does not hold")


_OPERATIONS = (
    "call iter next len bool getitem setitem delitem contains setattr delattr enter exit index int "
    "float complex lt le gt ge add radd sub rsub mul rmul matmul rmatmul truediv rtruediv floordiv "
    "rfloordiv mod rmod pow rpow neg pos abs invert and rand or ror xor rxor lshift rshift"
)

for _operation in _OPERATIONS.split():
    setattr(Placeholder, f"__{_operation}__", _touched)
Placeholder.__torch_function__ = classmethod(_touched_by_torch)  # type: ignore[attr-defined]
