"""Run an episode as often as it takes to tell how true its replay is, and why it is not."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flightrec.types import Evidence
from replay.fidelity import agree, compare
from replay.recurrence import recurs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flightrec.types import Status
    from replay.engine import Engine, Trace
    from replay.episode import Episode
    from replay.fidelity import Comparison
    from replay.recurrence import Recurrence

NAMED = 4
"""Changed classes and functions that are named; more are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What running an incident again showed."""

    trace: Trace
    comparison: Comparison
    recurrence: Recurrence
    evidence: tuple[Evidence, ...]
    runs: int
    """Re-executions that it took."""

    seconds: float

    @property
    def status(self) -> Status:
        """What a verdict says about the replay."""
        if self.recurrence.again:
            return "reproduced"
        if self.recurrence.again is None:
            return "unsupported"
        apart = self.comparison.outputs == "diverged" or self.comparison.gradients == "diverged"
        return "diverged" if apart else "not_reproduced"


def measure(
    engine: Engine,
    episode: Episode,
    manifest: Mapping[str, Any],
    *,
    changed: Sequence[str] = (),
) -> Measured:
    """Run `episode` once, and once or twice more where bits differ from the recorded ones.

    `changed` names code that is not what was recorded: where anything differs it is to blame,
    before any machine.
    """
    started = time.perf_counter()
    trace = engine.run(episode)
    comparison = compare(episode, trace)
    runs, evidence = 1, []
    if comparison.outputs != "bit_exact":
        runs, same = 2, agree(trace, engine.run(episode))
        evidence.append(_machine_or_chance(changed, same=same))
    elif comparison.gradients not in ("bit_exact", "none", "unavailable"):
        trace, comparison, runs = _gradients_again(engine, episode, trace)
    recurrence = recurs(manifest, episode, trace, comparison, engine.models)
    if changed and (comparison.outputs != "bit_exact" or recurrence.again is False):
        evidence.append(_code(changed, recurrence))
    return Measured(
        trace=trace,
        comparison=comparison,
        recurrence=recurrence,
        evidence=(*_evidence(episode, trace, comparison, recurrence), *evidence),
        runs=runs,
        seconds=time.perf_counter() - started,
    )


def _gradients_again(
    engine: Engine, episode: Episode, trace: Trace
) -> tuple[Trace, Comparison, int]:
    """Find out why gradients differ where outputs are exact.

    Neighbouring calls under autocast may have shared their casts of the weights or not, which
    was not recorded; the order of summation in half precision depends on it.
    """
    runs = 1
    if not trace.whole and sum(bool(call.autocast) for call in episode.calls) > 1:
        runs += 1
        engine.one_autocast = not engine.one_autocast
        other = engine.run(episode)
        found = compare(episode, other)
        if found.gradients == "bit_exact":
            return other, found, runs
        engine.one_autocast = not engine.one_autocast
    again = engine.run(episode)
    return trace, compare(episode, trace, again=again), runs + 1


def _machine_or_chance(changed: Sequence[str], *, same: bool) -> Evidence:
    between = "in the code, which has changed" if changed else "between the machines or settings"
    text = (
        f"two replays agree to the bit, so the difference lies {between}"
        if same
        else "two replays differ from each other, so this step is not deterministic here"
    )
    return Evidence(kind="determinism", text=text, value=same)


def _code(changed: Sequence[str], recurrence: Recurrence) -> Evidence:
    names = ", ".join(changed[:NAMED]) + (", ..." if len(changed) > NAMED else "")
    effect = "the failure is gone" if recurrence.again is False else "numbers differ"
    return Evidence(
        kind="code",
        text=f"the code has changed since: {names}; {effect}",
        value=len(changed),
    )


def _evidence(
    episode: Episode, trace: Trace, comparison: Comparison, recurrence: Recurrence
) -> Iterator[Evidence]:
    yield Evidence(kind="replay", text=recurrence.text, value=recurrence.again)
    if comparison.reason is not None:
        yield Evidence(kind="gradients", text=f"gradients: {comparison.reason}")
    if comparison.by_hash:
        text = f"{comparison.by_hash} of {comparison.compared} tensors were compared by hash"
        yield Evidence(kind="fidelity", text=text, value=comparison.by_hash)
    if episode.loss is not None and trace.loss is None and not trace.whole:
        text = "the loss was not computed again: that takes a step_fn"
        yield Evidence(kind="loss", text=text)
    if trace.written:
        text = f"the forward pass itself writes parameters: {', '.join(trace.written[:4])}"
        yield Evidence(kind="state", text=text, value=len(trace.written))
    for note in trace.notes:
        yield Evidence(kind="engine", text=note)
