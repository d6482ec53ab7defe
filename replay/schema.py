"""What an operator does to its arguments, read from its schema once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_CREATING = (
    "arange empty empty_like empty_permuted empty_strided eye fill fill_ full full_like "
    "new_empty new_empty_strided new_full new_ones new_zeros ones ones_like "
    "scalar_tensor zero zero_ zeros zeros_like"
)
_REPLACING = (
    "bernoulli_ cauchy_ copy_ exponential_ fill_ geometric_ log_normal_ normal_ random_ set_ "
    "uniform_ zero_"
)

CREATING = frozenset(_CREATING.split())
"""Operators that make the value they were asked for."""

REPLACING = frozenset(_REPLACING.split())
"""In-place operators that do not look at what was there before."""

STATISTICS = ("running_mean", "running_var")
"""Written by batch normalisation although older schemas do not say so."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one operator treats its arguments."""

    name: str
    """`aten.name.overload`."""

    written: frozenset[str]
    """Arguments it changes."""

    positions: tuple[str, ...]
    """Names of the positional arguments."""

    replaces: bool
    """It does not read what it changes."""

    creates: bool
    unwritten: bool


@cache
def behaviour(func: Any) -> Behaviour:
    """Return the behaviour of an operator; one without schema only reads."""
    name = str(func)
    word = name.split(".")[1] if "." in name else name
    schema = getattr(func, "_schema", None)
    arguments = () if schema is None else schema.arguments
    written = {each.name for each in arguments if each.alias_info and each.alias_info.is_write}
    if "batch_norm" in word and "backward" not in word and not written:
        written = {each.name for each in arguments if each.name in STATISTICS}
        return Behaviour(name, frozenset(written), _positions(arguments), False, False, False)  # noqa: FBT003
    return Behaviour(
        name=name,
        written=frozenset(written),
        positions=_positions(arguments),
        replaces=word in REPLACING or any(each.is_out for each in arguments),
        creates=word in CREATING,
        unwritten=word.startswith(("empty", "new_empty")),
    )


def _positions(arguments: Iterable[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in arguments if not each.kwarg_only)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in an argument or result: bare, or in lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def split(
    known: Behaviour, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the tensors that a call reads, and those it changes."""
    if not known.written:
        reads = [tensor for value in args for tensor in tensors_in(value)]
        if kwargs:
            reads.extend(tensor for value in kwargs.values() for tensor in tensors_in(value))
        return reads, []
    reads, changed = [], []
    named = list(zip(known.positions, args, strict=False))
    for name, value in (*named, *kwargs.items()):
        found = list(tensors_in(value))
        if name in known.written:
            changed.extend(found)
            if known.replaces:
                continue
        reads.extend(found)
    return reads, changed


def asks_for_infinity(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Is a NaN or infinite number among the plain arguments?"""
    for value in (*args, *kwargs.values()):
        if type(value) is float and not math.isfinite(value):
            return True
    return False
