"""What an operator scan writes down: operators, what they read and wrote, and in which module."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Stage: TypeAlias = Literal["forward", "loss", "backward"]
"""forward: inside a recorded call; loss: outside all calls; backward: inside a backward pass."""

LeafRole: TypeAlias = Literal["parameter", "buffer", "attribute", "input"]


class Flags(NamedTuple):
    """What one reduction told about the values of a tensor."""

    nan: bool
    """Holds a NaN; the next two are then unknown and False."""

    positive: bool
    """Holds +inf."""

    negative: bool
    """Holds -inf."""

    absmax: float
    """Largest magnitude; NaN where there is one."""

    numel: int

    @property
    def bad(self) -> frozenset[str]:
        """Return which of `nan`, `+inf` and `-inf` the tensor holds."""
        if not (self.nan or self.positive or self.negative):
            return frozenset()
        words = (("nan", self.nan), ("+inf", self.positive), ("-inf", self.negative))
        return frozenset(word for word, there in words if there)

    def zero(self, tolerance: float = 0.0) -> bool:
        """Is every one of at least two elements zero to within `tolerance`?"""
        return self.numel > 1 and self.absmax <= tolerance


class Span(NamedTuple):
    """A stretch of one storage that an operator read or wrote, and what was in it."""

    storage: int
    """Number of the storage, never used for another one within a scan."""

    start: int
    """First byte."""

    stop: int
    """One past the last byte; strided gaps in between count as part of it."""

    slot: int
    """Index into `OpLog.flags`; 0 where the values say nothing (integers, empty, meta)."""

    maker: int = -1
    """Operator that returned exactly this tensor, views included, else the last that wrote to
    its storage; -1 if none was seen."""


@dataclass(slots=True)
class Visit:
    """One run of a module's forward."""

    module: str
    """Public dotted name; of the nearest recorded module around it where it has none itself."""

    module_type: str
    call: int
    """Which call of that module in its step, from 0; recomputation counts on its own."""

    root_call: int
    """Which entry from outside in its step, from 0."""

    step: int
    again: bool = False
    """Recomputed inside a backward pass."""

    outputs: list[tuple[str, Span]] = field(default_factory=list)
    ended: int = -1
    """Number of operators there were when it returned, -1 if it raised."""


@dataclass(slots=True)
class Op:
    """One aten operator as it was executed."""

    index: int
    name: str
    """`aten.name.overload`."""

    stage: Stage
    visit: int = -1
    """Index into `OpLog.visits` of the module whose code it is, -1 outside every module.

    For an operator of the backward pass that is the module whose forward made the node.
    """

    reads: list[Span] = field(default_factory=list)
    writes: list[Span] = field(default_factory=list)
    views: bool = False
    """Only returns another view of what it was given."""

    constant: bool = False
    """Makes a value that was asked for: zeros, full(-inf), masked_fill(inf)."""

    unwritten: bool = False
    """Returns memory that nobody has written yet."""

    place: tuple[str, int] | None = None
    """File and line of the nearest frame outside torch, None where there is none."""

    forward: int | None = None
    """In a backward pass, the operator whose node is being evaluated."""

    node: str = ""
    """Name of that node."""

    owner: str = ""
    """Parameter (`root:name`) whose gradient is being accumulated."""

    error: str = ""
    """Type and message of the exception it raised."""


class Leaf(NamedTuple):
    """A tensor that existed before the step, by the role it has."""

    role: LeafRole
    names: tuple[str, ...]
    """`root:qualified.name` (first name first), or the path of an input."""

    module: str = ""
    """Public name of the module that owns it; empty for inputs, whose call is `call`."""

    call: int = 0


class SiteKey(NamedTuple):
    """What makes an operator of one step the counterpart of one in another step."""

    module: str | None
    name: str
    stage: Stage
    place: tuple[str, int] | None
    forward: str
    """Name of the forward operator whose node it belongs to, or of the node."""


class Site(NamedTuple):
    """An operator by its place in the code and by how often that place was reached."""

    key: SiteKey
    turn: int


@dataclass
class OpLog:
    """A whole step, operator by operator; plain values, no tensor is kept alive by it."""

    ops: list[Op] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    flags: list[Flags | None] = field(default_factory=lambda: [None])
    leaves: dict[int, Leaf] = field(default_factory=dict)
    """By number of the storage."""

    outputs: list[tuple[int, str, Span, int]] = field(default_factory=list)
    """Position of the call, leaf, span, and how many operators there were by then."""

    gradients: dict[str, Span] = field(default_factory=dict)
    """`root:name` of parameters to the gradient they hold at the end."""

    buffers: dict[str, Span] = field(default_factory=dict)
    """`root:name` of floating buffers as they are at the end."""

    def flag(self, span: Span) -> Flags | None:
        """Return what is known about the values of a span."""
        return self.flags[span.slot]

    def bad(self, span: Span) -> frozenset[str]:
        """Return the non-finite classes in a span."""
        flags = self.flags[span.slot]
        return frozenset() if flags is None else flags.bad

    def visit(self, op: Op) -> Visit | None:
        """Return the module run that an operator belongs to."""
        return self.visits[op.visit] if op.visit >= 0 else None

    def module(self, op: Op) -> str | None:
        """Return the public name of an operator's module, None outside every module."""
        return self.visits[op.visit].module if op.visit >= 0 else None

    def site_key(self, op: Op) -> SiteKey:
        """Return the place of an operator without its turn."""
        forward = op.node if op.forward is None else self.ops[op.forward].name
        return SiteKey(self.module(op), op.name, op.stage, op.place, forward)

    def sites(self) -> list[Site]:
        """Return the site of each operator, in order."""
        turns: Counter[SiteKey] = Counter()
        found = []
        for op in self.ops:
            key = self.site_key(op)
            found.append(Site(key, turns[key]))
            turns[key] += 1
        return found


class Writers:
    """Who wrote what into which storage, for walks from a value back to its makers."""

    def __init__(self, log: OpLog) -> None:
        """Index the writes of `log`."""
        self._log = log
        self._writes: Mapping[int, list[tuple[int, Span]]]
        writes: dict[int, list[tuple[int, Span]]] = defaultdict(list)
        for op in log.ops:
            for span in op.writes:
                writes[span.storage].append((op.index, span))
        self._writes = writes

    def of(self, span: Span, before: int) -> Sequence[tuple[int, Span]]:
        """Return the writes that `span` can hold a value of, newest first.

        Only operators before index `before` count; the walk ends at a write that covers the
        whole span, since nothing older can show through it.
        """
        return list(self._walk(span, before))

    def _walk(self, span: Span, before: int) -> Iterator[tuple[int, Span]]:
        writes = self._writes.get(span.storage, ())
        for position in range(bisect_left(writes, before, key=lambda each: each[0]) - 1, -1, -1):
            index, written = writes[position]
            if written.start < span.stop and span.start < written.stop:
                yield index, written
                if written.start <= span.start and span.stop <= written.stop:
                    return
