"""The answer of a bisection: what made the first bad value, where, and how that was shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replay.frames import source_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flightrec.types import Evidence, Phase, SourceLine
    from replay.choice import Candidate
    from replay.oplog import Leaf, Op, OpLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """What `bisect` concludes; the fields mean what they mean in a verdict (DESIGN section 8)."""

    kind: str
    """nan, inf, zeroed or exception: what was found, whatever opened the incident."""

    phase: Phase
    step: int
    """The step of the segment in which the bad value was made."""

    module: str | None = None
    module_type: str | None = None
    call: int | None = None
    """Which call of that module in its step."""

    root_call: int | None = None
    op: str | None = None
    backward_of: str | None = None
    source: SourceLine | None = None
    sample: int | None = None
    index: tuple[int, ...] | None = None
    confirmed: bool = False
    evidence: tuple[Evidence, ...] = ()
    forward_passes: int = 0
    """Re-executions that it took, controls and experiments included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The part of a culprit that a candidate alone determines."""

    phase: Phase
    module: str | None = None
    module_type: str | None = None
    call: int | None = None
    root_call: int | None = None
    step: int | None = None
    op: str | None = None
    backward_of: str | None = None
    source: SourceLine | None = None


def blame_operator(log: OpLog, op: Op, *, state: bool = False) -> Blame:
    """Say where an operator stands; with `state` it spoiled a buffer, which is the failure."""
    visit = log.visit(op)
    phase: Phase = "parameter" if state else op.stage
    owner = None
    if visit is None and op.owner:
        owner = next((leaf.module for leaf in log.leaves.values() if op.owner in leaf.names), None)
    return Blame(
        phase=phase,
        module=owner if visit is None else visit.module,
        module_type=None if visit is None else visit.module_type,
        call=None if visit is None else visit.call,
        root_call=None if visit is None else visit.root_call,
        step=None if visit is None else visit.step,
        op=op.name,
        backward_of=None if op.forward is None else log.ops[op.forward].name,
        source=source_line(op.place),
    )


def owner_of(candidates: Sequence[Candidate], *, parameters: int) -> Leaf | None:
    """Return the first bad parameter or buffer, None where several alike are bad.

    Alike are several that are zero, the same parameter of sibling layers, and more than half
    of the `parameters` there are.
    """
    leaves = [
        each.leaf for each in candidates if each.leaf is not None and each.leaf.role != "input"
    ]
    first = leaves[0]
    owners = {leaf.module for leaf in leaves}
    if len(owners) == 1:
        return first
    zeroed = any("zero" in each.classes for each in candidates)
    siblings = {re.sub(r"\d+", "*", leaf.names[0]) for leaf in leaves}
    if zeroed or len(siblings) == 1 or 2 * len(leaves) > parameters:
        return None
    return first
