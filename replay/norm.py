"""What counts as bad: a value at a place, beside what healthy steps had at the same place."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from replay.oplog import Writers

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from replay.oplog import Leaf, Op, OpLog, Site, Span

    Row = tuple[Hashable, int]

NEARLY_ZERO = 1e-3
"""Share of the healthy magnitude under which an output counts as zeroed (DESIGN section 4)."""

ZERO = frozenset({"zero"})


class Healthy:
    """Classes of values and magnitudes that control steps had, place by place.

    An operator that was not reached as often in any control is compared with all turns of the
    same place, since loops over sequences run longer in one step than in another.
    """

    def __init__(self, logs: Sequence[OpLog]) -> None:
        """Read the logs of steps that did not fail."""
        self.steps = len(logs)
        self._bad: dict[Row, set[str]] = defaultdict(set)
        self._sizes: dict[Row, list[float]] = defaultdict(list)
        self._leaves: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for log in logs:
            self._learn(log)

    def _learn(self, log: OpLog) -> None:
        for op, site in zip(log.ops, log.sites(), strict=True):
            for position, span in enumerate(op.writes):
                flags = log.flag(span)
                if flags is None:
                    continue
                words = flags.bad | (ZERO if flags.zero() else frozenset())
                for row in ((site, position), (site.key, position)):
                    self._bad[row] |= words
                    if not flags.bad:
                        self._sizes[row].append(flags.absmax)
            for span in op.reads:
                leaf = log.leaves.get(span.storage)
                flags = log.flag(span)
                if leaf is not None and flags is not None:
                    words = flags.bad | (ZERO if flags.zero() else frozenset())
                    self._leaves[_leaf_key(leaf)] |= words

    def bad(self, site: Site, position: int) -> frozenset[str]:
        """Return the classes that healthy steps had at one output of one place."""
        row: Row = (site, position)
        if row not in self._bad:
            row = (site.key, position)
        return frozenset(self._bad.get(row, ()))

    def size(self, site: Site, position: int) -> float | None:
        """Return the median magnitude of that output, None where no control reached it."""
        sizes = self._sizes.get((site, position)) or self._sizes.get((site.key, position))
        return median(sizes) if sizes else None

    def leaf(self, leaf: Leaf) -> frozenset[str] | None:
        """Return the classes an existing tensor had, None where no control read it."""
        found = self._leaves.get(_leaf_key(leaf))
        return None if found is None else frozenset(found)


def _leaf_key(leaf: Leaf) -> tuple[str, ...]:
    return (leaf.role, str(leaf.call), leaf.names[0])


class Judge:
    """Says of one step's reads and writes in which way they are bad."""

    def __init__(
        self,
        log: OpLog,
        healthy: Healthy,
        *,
        zeros: bool = False,
        exact: bool = False,
        floor: float = 0.0,
    ) -> None:
        """Judge `log`; with `zeros` an all-zero tensor is bad as well.

        Zero means at most `NEARLY_ZERO` of the healthy magnitude of that place, or at most
        `floor` where it is not known; with `exact` it means 0.
        """
        self.log = log
        self.healthy = healthy
        self.zeros = zeros
        self.exact = exact
        self.floor = floor
        self.sites = log.sites()
        self.writers = Writers(log)

    def tolerance(self, op: Op, position: int) -> float:
        """Return the magnitude up to which an output of this operator is zero."""
        if self.exact:
            return 0.0
        size = self.healthy.size(self.sites[op.index], position)
        return NEARLY_ZERO * size if size else self.floor

    def written(self, op: Op) -> frozenset[str]:
        """Return the classes of everything an operator wrote."""
        found: frozenset[str] = frozenset()
        for position, span in enumerate(op.writes):
            found |= self.output(op, position, span)
        return found

    def output(self, op: Op, position: int, span: Span) -> frozenset[str]:
        """Return the classes of one output of an operator."""
        flags = self.log.flag(span)
        if flags is None:
            return frozenset()
        if self.zeros and flags.zero(self.tolerance(op, position)):
            return ZERO
        return flags.bad

    def read(self, span: Span, before: int) -> frozenset[str]:
        """Return the classes of a value read after `before` operators."""
        flags = self.log.flag(span)
        if flags is None:
            return frozenset()
        if self.zeros and not flags.bad and flags.numel > 1:
            tolerance = 0.0
            for index, written in self.writers.of(span, before):
                op = self.log.ops[index]
                tolerance = max(tolerance, self.tolerance(op, op.writes.index(written)))
            if flags.absmax <= tolerance:
                return ZERO
        return flags.bad

    def normal(self, op: Op) -> bool:
        """Did healthy steps have all the bad classes of this operator's outputs too?"""
        found = False
        for position, span in enumerate(op.writes):
            classes = self.output(op, position, span)
            if not classes <= self.healthy.bad(self.sites[op.index], position):
                return False
            found = found or bool(classes)
        return found

    def expected(self, leaf: Leaf | None, classes: frozenset[str]) -> bool:
        """Is a bad tensor that existed before the step no cause of anything?

        That is so where a healthy step read it as bad too, and, where none read it, for a
        tensor whose only bad values are -inf: a mask. Zero biases are as good as none, and so
        are zeros of a tensor that belongs to nobody. Healthy steps are replayed through the
        failing weights, so they cannot speak for a NaN or +inf in these.
        """
        if leaf is None:
            return classes in ({"-inf"}, ZERO)
        if classes == ZERO and "bias" in leaf.names[0].rpartition(".")[2]:
            return True
        known = self.healthy.leaf(leaf)
        if known is None or self.is_weight(leaf, classes):
            return classes == {"-inf"}
        return classes <= known

    def is_weight(self, leaf: Leaf | None, classes: frozenset[str]) -> bool:
        """Is it a weight that holds what no weight should?"""
        if leaf is None or leaf.role not in ("parameter", "attribute"):
            return False
        return not classes <= {"-inf", "zero"}
