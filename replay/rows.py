"""Exchange rows of a nested batch: which dimension holds the samples, and how to swap them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class UnlikeError(ValueError):
    """Two batches whose rows cannot take each other's place."""


def sizes(value: Any) -> list[int]:
    """Return what the number of samples in a nested batch can be, most likely first.

    That is the most frequent first dimension of tensors, those inside lists coming last since
    a list can hold one entry per sample, whose own first dimension is something else.
    """
    plain = Counter(_lengths(value, inside_lists=False))
    lists = Counter(_list_lengths(value))
    listed = Counter(_lengths(value, inside_lists=True))
    found = [size for counts in (plain, lists, listed) for size, _ in counts.most_common(1)]
    return [size for size in dict.fromkeys(found) if size > 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Replaces some rows of one batch by rows of another."""

    size: int
    """Number of samples; tensors of this first dimension and lists of this length hold rows."""

    rows: frozenset[int]
    source: Callable[[int], int]
    """Row of the donor that replaces a row, counted modulo what the donor has."""

    def __call__(self, value: Any, donor: Any) -> Any:
        """Return a copy of `value` with the rows exchanged; what holds no rows is shared.

        Raises `UnlikeError` where the donor has another structure or shape.
        """
        if isinstance(value, torch.Tensor):
            return self._tensor(value, donor)
        if isinstance(value, Mapping):
            return self._mapping(value, donor)
        if isinstance(value, (list, tuple)):
            return self._list(value, donor)
        return value

    def _tensor(self, value: torch.Tensor, donor: Any) -> torch.Tensor:
        if value.dim() == 0 or value.shape[0] != self.size:
            return value
        if not isinstance(donor, torch.Tensor) or donor.shape[1:] != value.shape[1:]:
            raise UnlikeError(f"no rows of shape {tuple(value.shape[1:])} in the donor")
        mixed = value.detach().clone()
        for row in self.rows:
            mixed[row] = donor[self.source(row) % donor.shape[0]].to(mixed.dtype)
        # Not a leaf, since a forward may change its arguments in place.
        return mixed.requires_grad_().clone() if value.requires_grad else mixed

    def _mapping(self, value: Any, donor: Any) -> Any:
        if not isinstance(donor, Mapping) or value.keys() - donor.keys():
            raise UnlikeError("the donor has other keys")
        mixed = dict(value) if type(value) is dict else copy.copy(value)
        for key, item in value.items():
            changed = self(item, donor[key])
            if changed is not item:
                mixed[key] = changed
        return mixed

    def _list(self, value: Any, donor: Any) -> Any:
        if not isinstance(donor, (list, tuple)):
            raise UnlikeError("the donor has another structure")
        if self._one_per_sample(value):
            items = [
                donor[self.source(row) % len(donor)] if row in self.rows else item
                for row, item in enumerate(value)
            ]
        elif len(donor) != len(value):
            raise UnlikeError("the donor has another length")
        else:
            items = [self(item, other) for item, other in zip(value, donor, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)

    def _one_per_sample(self, value: Any) -> bool:
        """Does this list have one entry per sample, rather than one per kind of input?"""
        if len(value) != self.size or hasattr(value, "_fields"):
            return False
        if all(isinstance(item, torch.Tensor) for item in value):
            return not all(item.dim() and item.shape[0] == self.size for item in value)
        return isinstance(value, list) or all(isinstance(item, dict) for item in value)


def _lengths(value: Any, *, inside_lists: bool) -> Iterator[int]:
    """Yield the first dimension of each tensor."""
    if isinstance(value, torch.Tensor):
        if value.dim():
            yield int(value.shape[0])
        return
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.values()
    elif isinstance(value, tuple) or (inside_lists and isinstance(value, list)):
        items = value
    for item in items:
        yield from _lengths(item, inside_lists=inside_lists)


def _list_lengths(value: Any) -> Iterator[int]:
    """Yield the length of each list."""
    if isinstance(value, list):
        yield len(value)
    if isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _list_lengths(item)
