"""Where a failure shows in what a run left: outputs, loss, gradients, buffers; no torch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from replay.norm import NEARLY_ZERO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from replay.oplog import Flags

Where: TypeAlias = Literal["output", "loss", "gradient", "buffer", "inner", "exception"]

Key: TypeAlias = tuple[int, str]
"""Position of the call and leaf; for gradients and buffers 0 and `root:name`."""

STAGES: tuple[Where, ...] = ("output", "loss", "gradient", "buffer")
"""In the order in which the first bad one decides what an incident is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a run left behind, by stage and key."""

    values: Mapping[Where, Mapping[Key, Flags]] = field(default_factory=dict)
    exception: str | None = None
    """Type and message."""

    def get(self, where: Where) -> Mapping[Key, Flags]:
        """Return the values of a stage."""
        return self.values.get(where, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """The first bad stage of a run, and how to see whether another run has it too."""

    kind: str
    """nan, inf, zeroed or exception."""

    where: Where
    keys: tuple[Key, ...] = ()
    usual: Mapping[tuple[Where, Key], frozenset[str]] = field(default_factory=dict)
    """Classes that controls have at a stage and key; no fault there."""

    sizes: Mapping[tuple[Where, Key], float] = field(default_factory=dict)
    """Magnitudes that controls have there."""

    def shows(self, look: Look) -> bool:
        """Does a run fail in this way, or by an exception?"""
        if look.exception is not None:
            return True
        if self.where == "exception":
            return False
        if self.kind == "zeroed":
            if self.where == "gradient":
                return _all_zero(look)
            values = look.get(self.where)
            return any(key in values and self._zero(key, values[key]) for key in self.keys)
        if self.where == "inner":
            values = look.get("inner")
            return any(
                key in values and self._new(self.where, key, values[key]) for key in self.keys
            )
        last = self.keys[0][0] if self.where == "output" else None
        return any(
            self._new(where, key, flags)
            for where in STAGES[: STAGES.index(self.where) + 1]
            for key, flags in look.get(where).items()
            if last is None or key[0] <= last
        )

    def _new(self, where: Where, key: Key, flags: Flags) -> bool:
        return not flags.bad <= self.usual.get((where, key), frozenset())

    def _zero(self, key: Key, flags: Flags) -> bool:
        return flags.zero(NEARLY_ZERO * self.sizes.get((self.where, key), 0.0))


class Watch:
    """Finds symptoms in a run, beside what control runs left."""

    def __init__(self, controls: Sequence[Look]) -> None:
        """Learn what is usual."""
        self._usual: dict[tuple[Where, Key], set[str]] = defaultdict(set)
        sizes: dict[tuple[Where, Key], list[float]] = defaultdict(list)
        for look in controls:
            for where, values in look.values.items():
                for key, flags in values.items():
                    self._usual[where, key] |= flags.bad
                    if not flags.bad:
                        sizes[where, key].append(flags.absmax)
        self._sizes = {each: median(found) for each, found in sizes.items()}

    def find(self, look: Look, kind: str) -> Symptom | None:
        """Return the first symptom that fits an incident of this kind.

        A zeroed incident can turn out to hide a NaN, a NaN never to be a zero.
        """
        if look.exception is not None:
            return Symptom(kind="exception", where="exception")
        searches = [self.nonfinite, self.zeroed]
        if kind == "zeroed":
            searches.reverse()
        elif kind in ("nan", "inf"):
            searches.pop()
        for search in searches:
            found = search(look)
            if found is not None:
                return found
        return None

    def nonfinite(self, look: Look) -> Symptom | None:
        """Return the first stage with NaN or infinity that controls do not have there."""
        for where in STAGES:
            found = {}
            for key, flags in look.get(where).items():
                new = flags.bad - self._usual.get((where, key), set())
                if new:
                    found[key] = new
            if found:
                kind = "nan" if any("nan" in new for new in found.values()) else "inf"
                return self._symptom(kind, where, tuple(found))
        return None

    def zeroed(self, look: Look) -> Symptom | None:
        """Return outputs that are zero although controls' are not, or all gradients being so."""
        found = []
        for key, flags in look.get("output").items():
            size = self._sizes.get(("output", key))
            if size != 0.0 and flags.zero(NEARLY_ZERO * (size or 0.0)):
                found.append(key)
        if found:
            return self._symptom("zeroed", "output", tuple(found))
        if _all_zero(look):
            return self._symptom("zeroed", "gradient", tuple(look.get("gradient")))
        return None

    def inner(self, look: Look, *, known: bool) -> Iterator[Symptom]:
        """Yield what inner modules returned bad, then zeroed, although no control's did.

        With `known` only modules count that controls ran too. Without, nothing is known of
        healthy steps, and everything bad counts.
        """
        default = {"nan", "+inf", "-inf"} if known else set()
        for key, flags in look.get("inner").items():
            new = flags.bad - self._usual.get(("inner", key), default)
            if new:
                yield self._symptom("nan" if "nan" in new else "inf", "inner", (key,))
        for key, flags in look.get("inner").items():
            size = self._sizes.get(("inner", key), 0.0)
            if (size > 0 or not known) and flags.zero(NEARLY_ZERO * size):
                yield self._symptom("zeroed", "inner", (key,))

    def _symptom(self, kind: str, where: Where, keys: tuple[Key, ...]) -> Symptom:
        """Put a symptom together; of several calls the first one that went bad counts.

        What later calls were given was recorded, and stays bad whatever is mended before.
        """
        if where == "output":
            first = min(position for position, _ in keys)
            keys = tuple(key for key in keys if key[0] == first)
        return Symptom(
            kind=kind,
            where=where,
            keys=keys,
            usual={each: frozenset(classes) for each, classes in self._usual.items()},
            sizes=self._sizes,
        )


def _all_zero(look: Look) -> bool:
    gradients = look.get("gradient").values()
    return bool(gradients) and all(flags.absmax == 0 for flags in gradients)
