"""Choose, among the operators that bad values went through, those that can have made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from replay.norm import ZERO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.norm import Judge
    from replay.oplog import Leaf, Op, Span
    from replay.search import BadRead, Slice

Reason: TypeAlias = Literal["origin", "birth", "suspect", "leaf", "gradient"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One possible producer of the first bad value."""

    reason: Reason
    """origin: good inputs, bad output. birth: a NaN made of infinities that are no fault.
    suspect: bad output beyond what its faultless bad inputs explain, to be tested.
    leaf: a tensor that was bad before. gradient: a bad gradient that came from outside."""

    op: int
    """The operator; for a leaf the first that read it."""

    leaf: Leaf | None = None
    span: Span | None = None
    classes: frozenset[str] = frozenset()


def choose(judge: Judge, found: Slice, *, backward: bool = False) -> list[Candidate]:
    """Return candidates, most likely first.

    Producers with good inputs come first, in execution order; then NaNs born of infinities
    that are constants, masks or usual at that place; then suspects. With `backward` only
    operators of backward passes can be blamed, and values of the forward pass are taken as
    they are, unless they go back to nothing but a tensor that was bad before the step: a
    kernel of the forward pass may have swallowed what it held.
    """
    ranked = _Choice(judge, found, backward=backward).ranked()
    if not backward or any(each.reason in ("origin", "gradient") for each in ranked):
        return ranked
    whole = _Choice(judge, found, backward=False).ranked()
    if any(each.reason == "origin" for each in whole):
        return ranked
    before = [each for each in whole if each.reason == "leaf" and each.leaf is not None]
    return before + [each for each in ranked if each.reason != "leaf"]


class _Choice:
    """One walk over the operators of a slice, in execution order."""

    def __init__(self, judge: Judge, found: Slice, *, backward: bool) -> None:
        self._judge = judge
        self._log = judge.log
        self._found = found
        self._backward = backward
        self._benign: dict[int, bool] = {}
        self._intended: set[int] = set()
        self._first: list[Candidate] = []
        self._second: list[Candidate] = []
        self._last: list[Candidate] = []
        self._leaves: set[int] = set()

    def ranked(self) -> list[Candidate]:
        """Return all candidates in order."""
        for index, reads in self._found.reads.items():
            op = self._log.ops[index]
            live = [read for read in reads if not self._ignored(read)]
            self._benign[index] = self._is_benign(op, reads, live)
            if self._inside(op) and not self._benign[index]:
                self._blame(op, live)
        for read in self._found.starts:
            if read.source != "writers":
                self._blame_source(len(self._log.ops), read)
        return self._first + sorted(self._second, key=lambda each: each.op) + self._last[:1]

    def _inside(self, op: Op) -> bool:
        return not self._backward or op.stage == "backward"

    def _ignored(self, read: BadRead) -> bool:
        """Is it a zero that was put there: a fresh tensor, a bias?"""
        if read.classes != ZERO:
            return False
        if read.source == "writers":
            return all(self._made_zero(index) for index in read.ops)
        return read.source == "leaf" and self._judge.expected(self._leaf(read), ZERO)

    def _made_zero(self, index: int) -> bool:
        """Did this operator write zeros because it was told to, or copy such zeros?"""
        op = self._log.ops[index]
        if op.constant:
            return True
        reads = self._found.reads.get(index, [])
        return (
            0 < len(op.reads) == len(reads)
            and index in self._benign
            and all(self._ignored(read) for read in reads)
        )

    def _leaf(self, read: BadRead) -> Leaf | None:
        return self._log.leaves.get(read.span.storage)

    def _is_benign(self, op: Op, reads: list[BadRead], live: list[BadRead]) -> bool:
        """Is the bad output intended, or usual at this place?"""
        before = [read for read in live if read.source == "leaf"]
        if any(self._judge.is_weight(self._leaf(read), read.classes) for read in before):
            return False
        if op.constant or (len(reads) == len(op.reads) > 0 and not live):
            self._intended.add(op.index)
            return True
        taken = {name for read in live for name in read.classes}
        if (
            live
            and self._judge.written(op) <= taken
            and all(self._is_intended(read) for read in live)
        ):
            self._intended.add(op.index)  # a mask on its way
            return True
        return self._judge.normal(op)

    def _is_intended(self, read: BadRead) -> bool:
        """Does a bad value come from constants only, or from a mask that was there before?"""
        if read.source == "leaf":
            mask = read.classes <= {"-inf", "zero"}
            return mask and self._judge.expected(self._leaf(read), read.classes)
        return read.source == "writers" and all(index in self._intended for index in read.ops)

    def _harmless(self, read: BadRead) -> bool:
        """Did a bad value come only from places where it may be?"""
        if read.source == "leaf":
            return self._judge.expected(self._leaf(read), read.classes)
        if read.source == "memory":
            return False
        return all(self._benign.get(index, False) for index in read.ops)

    def _blame(self, op: Op, live: list[BadRead]) -> None:
        """Add `op`, or what it read, where either can be the producer."""
        classes = self._judge.written(op)
        if not live:
            self._first.append(Candidate(reason="origin", op=op.index, classes=classes))
            return
        for read in live:
            if read.source != "writers" and not self._harmless(read):
                self._blame_source(op.index, read)
        born = "nan" in classes and not any("nan" in read.classes for read in live)
        harmless = all(self._harmless(read) or self._foreign(read) for read in live)
        if not born and not harmless:
            self._last.append(Candidate(reason="suspect", op=op.index, classes=classes))
            return
        reason: Reason = "birth" if born else "suspect"
        self._second.extend(self._used_now(op, live))
        self._second.append(Candidate(reason=reason, op=op.index, classes=classes))

    def _used_now(self, op: Op, live: list[BadRead]) -> Iterator[Candidate]:
        """Yield bad buffers that healthy steps read too, but only their good part.

        Masks of -inf are what they should be, and so may the usual holes in a batch be.
        """
        for read in live:
            leaf = self._leaf(read)
            if leaf is None or read.source != "leaf" or leaf.role == "input":
                continue
            if read.span.storage not in self._leaves and not read.classes <= {"-inf", "zero"}:
                self._leaves.add(read.span.storage)
                yield Candidate(
                    reason="leaf", op=op.index, leaf=leaf, span=read.span, classes=read.classes
                )

    def _foreign(self, read: BadRead) -> bool:
        """Is it, for a search in the backward pass, a value of the forward pass?"""
        return (
            self._backward
            and bool(read.ops)
            and all(not self._inside(self._log.ops[index]) for index in read.ops)
        )

    def _blame_source(self, index: int, read: BadRead) -> None:
        """Add a bad tensor that no operator of the step made, or the view that shows it."""
        span = read.span
        if read.source == "view":
            return  # an operator like others, and blamed as such
        if read.source == "memory":
            for maker in read.ops:
                self._first.append(Candidate(reason="origin", op=maker, classes=read.classes))
            return
        leaf = self._leaf(read)
        if span.storage in self._leaves or self._judge.expected(leaf, read.classes):
            return
        self._leaves.add(span.storage)
        reason: Reason = "leaf" if leaf is not None or not self._backward else "gradient"
        self._first.append(
            Candidate(reason=reason, op=index, leaf=leaf, span=span, classes=read.classes)
        )
