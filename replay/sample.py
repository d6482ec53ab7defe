"""Find the one row of the batch that makes a step fail, by exchanging rows and running again."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from replay.rows import Exchange, UnlikeError, sizes
from replay.search import only_member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from replay.engine import Edit
    from replay.episode import Arguments, Episode, RecordedCall

CONTROLS = 2
"""Control steps that are asked for rows before rows of the failing batch itself are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Donor:
    """Where healthy rows come from."""

    name: str
    episode: Episode
    row: int | None = None
    """Every row is taken from this one of the failing batch; None: row by row of a control."""

    def source(self, row: int) -> int:
        """Return the donor's row that replaces `row`."""
        return row if self.row is None else self.row


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which rows of the batch each call got."""

    size: int
    calls: Mapping[int, tuple[int, int]]
    """By index of the call: its first row, and how many rows it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSearch:
    """The search in one failing episode."""

    episode: Episode
    controls: Sequence[Episode]
    whole: bool
    """The batch itself is edited, as a `step_fn` gets it, not the arguments of calls."""

    cured: Callable[[Edit], bool]
    """Runs the episode with an edit and tells whether it is healthy then."""

    hints: Sequence[frozenset[int]] = ()
    """Rows that hold bad values somewhere; where it is one alone, it is tried first."""

    def find(self) -> tuple[int, Donor] | None:
        """Return the only row that matters and the donor of the proof, None if there is none.

        The first donor whose rows fit decides, unless it is a row of the failing batch that
        may itself be bad.
        """
        for layout in self._layouts():
            for donor in self._donors(layout.size):
                answer = self._search(layout, donor)
                if answer is not None and answer >= 0:
                    return answer, donor
                if answer is None and donor.row is None:
                    break
        return None

    def _search(self, layout: Layout, donor: Donor) -> int | None:
        """Return the row, None where this donor shows that there is none, -1 if it cannot."""

        def cured(rows: frozenset[int]) -> bool:
            return self.cured(self._edit(layout, donor, rows))

        everyone = frozenset(range(layout.size))
        try:
            for hint in self.hints:
                if len(hint) == 1 and hint < everyone and cured(hint):
                    return None if cured(everyone - hint) else next(iter(hint))
            return only_member(layout.size, cured) if cured(everyone) else None
        except (UnlikeError, IndexError):
            return -1

    def _edit(self, layout: Layout, donor: Donor, rows: frozenset[int]) -> Edit:
        def edit(
            call: RecordedCall | None, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Arguments:
            first, length = (0, layout.size) if call is None else layout.calls[call.index]
            here = frozenset(row - first for row in rows if first <= row < first + length)
            if not here:
                return args, kwargs
            swap = Exchange(size=length, rows=here, source=donor.source)
            others = _arguments(donor.episode, call)
            if len(others[0]) != len(args):
                raise UnlikeError("the donor got other arguments")
            mixed = [swap(mine, other) for mine, other in zip(args, others[0], strict=True)]
            return tuple(mixed), swap(kwargs, others[1])

        return edit

    def _layouts(self) -> Iterator[Layout]:
        """Yield how samples may lie in batch and calls, most likely first."""
        episode = self.episode
        batch = [] if episode.batch is None else sizes(episode.batch())
        if self.whole:
            for size in batch:
                yield Layout(size=size, calls={})
            return
        calls = {call.index: sizes(call.fresh()) for call in episode.calls}
        tried = set()
        for size in [*batch, *next(iter(calls.values()), [])]:
            if size in tried:
                continue
            tried.add(size)
            if any(size in found for found in calls.values()):
                lengths = {index: size if size in found else 0 for index, found in calls.items()}
                yield Layout(
                    size=size, calls={index: (0, length) for index, length in lengths.items()}
                )
                continue
            parts = [found[0] if found else 0 for found in calls.values()]
            if sum(parts) == size:
                starts = [0, *accumulate(parts)]
                yield Layout(
                    size=size, calls=dict(zip(calls, zip(starts, parts, strict=False), strict=True))
                )

    def _donors(self, size: int) -> Iterator[Donor]:
        for control in list(self.controls)[:CONTROLS]:
            yield Donor(name=f"step {control.step}", episode=control)
        for row in (0, size - 1):
            yield Donor(name=f"row {row} of the same batch", episode=self.episode, row=row)


def _arguments(episode: Episode, call: RecordedCall | None) -> Arguments:
    """Return what the donor gave to the same call, or its batch."""
    if call is None:
        if episode.batch is None:
            raise UnlikeError("the donor has no batch")
        return (episode.batch(),), {}
    other = episode.calls[call.index]
    if (other.root, other.module) != (call.root, call.module):
        raise UnlikeError("the donor made other calls")
    return other.fresh()
