"""Pure searches: from a bad value back to where it was made, and the one row that matters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from replay.norm import Judge
    from replay.oplog import Span

Source: TypeAlias = Literal["writers", "leaf", "memory", "view"]


class BadRead(NamedTuple):
    """A bad value that an operator, or the symptom itself, took in."""

    span: Span
    classes: frozenset[str]
    source: Source
    """writers: operators made it. leaf: it was there before the step. memory: nobody wrote it.
    view: a view shows the zero part of a tensor that is not zero."""

    ops: tuple[int, ...] = ()
    """The operators it came from."""


@dataclass(slots=True)
class Slice:
    """All operators through which bad values reached the symptom, and what they read."""

    starts: list[BadRead] = field(default_factory=list)
    reads: dict[int, list[BadRead]] = field(default_factory=dict)
    """By operator, in execution order."""


def trace_back(judge: Judge, starts: Iterable[tuple[Span, int]]) -> Slice:
    """Walk from spans, each as it was after so many operators, back along bad values only."""
    found = Slice()
    todo: list[int] = []
    for span, before in starts:
        classes = judge.read(span, before)
        if classes:
            read = _explain(judge, span, before, classes)
            found.starts.append(read)
            todo.extend(read.ops)
    reads: dict[int, list[BadRead]] = {}
    while todo:
        index = todo.pop()
        if index in reads:
            continue
        reads[index] = []
        for span in judge.log.ops[index].reads:
            classes = judge.read(span, index)
            if classes:
                read = _explain(judge, span, index, classes)
                reads[index].append(read)
                todo.extend(read.ops)
    found.reads = dict(sorted(reads.items()))
    return found


def _explain(judge: Judge, span: Span, before: int, classes: frozenset[str]) -> BadRead:
    """Find the operators that a bad value came from."""
    writers = judge.writers.of(span, before)
    ops = judge.log.ops
    guilty = [
        index
        for index, written in writers
        if judge.output(ops[index], ops[index].writes.index(written), written)
    ]
    if guilty:
        return BadRead(span, classes, "writers", tuple(guilty))
    empty = [index for index, _ in writers if ops[index].unwritten]
    if empty:
        return BadRead(span, classes, "memory", tuple(empty))
    if span.maker >= 0 and ops[span.maker].views and writers:
        return BadRead(span, classes, "view", (span.maker,))
    return BadRead(span, classes, "leaf")


def only_member(count: int, cured: Callable[[frozenset[int]], bool]) -> int | None:
    """Find the only one of `count` members whose exchange cures, in log2(count) + 2 trials.

    `cured(members)` exchanges these and tells whether the failure is gone; for all members
    together it must be known to be. None where two or more are needed. The answer is verified:
    exchanging it alone cures, and exchanging all others does not.
    """
    if count < 2:
        return None
    suspects = list(range(count))
    while len(suspects) > 1:
        half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
        suspects = half if cured(frozenset(half)) else rest
    alone = frozenset(suspects)
    if not cured(alone) or cured(frozenset(range(count)) - alone):
        return None
    return suspects[0]
