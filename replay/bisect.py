"""Name what made the first bad value of a step, and show by experiments that it did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flightrec.types import Evidence
from replay.choice import choose
from replay.look import look
from replay.norm import Healthy, Judge
from replay.proof import Prover
from replay.raising import outside, raised
from replay.sample import RowSearch
from replay.scan import Scan
from replay.search import trace_back
from replay.symptom import Watch
from replay.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.culprit import Culprit
    from replay.engine import Edit, Engine, Observer, Trace
    from replay.episode import Arguments, Episode, RecordedCall
    from replay.oplog import OpLog, Span
    from replay.symptom import Look, Symptom

CONTROLS = 3
"""Healthy steps that are scanned, newest first."""

VALUE_KINDS = ("nan", "inf", "zeroed")
"""Kinds of incident that a bad value opened."""


def bisect(
    engine: Engine, episode: Episode, controls: Sequence[Episode] = (), kind: str = "manual"
) -> Culprit | None:
    """Find the producer of the first bad value of `episode`; None where nothing is bad.

    `controls` are healthy earlier steps, oldest first, replayed through the same weights;
    `kind` is that of the incident. For kinds that no bad value opened, the first non-finite
    value is looked for, then the first zeroed output that the controls did not have.
    """
    return Bisection(engine, episode, controls, kind).culprit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """One step, re-executed under a scan."""

    scan: Scan
    trace: Trace
    look: Look

    @property
    def log(self) -> OpLog:
        """Return its operators."""
        return self.scan.log


class Bisection:
    """One search; `runs` counts re-executions."""

    def __init__(
        self, engine: Engine, episode: Episode, controls: Sequence[Episode], kind: str
    ) -> None:
        """Prepare to search."""
        self.engine = engine
        self.episode = episode
        self.controls = list(reversed(controls))[:CONTROLS]
        self.kind = kind
        self.runs = 0
        self.backward = False
        """Do failure and experiments need the backward pass?"""

    def culprit(self) -> Culprit | None:
        """Run the search."""
        failing = self._scan(self.episode)
        healthy = [self._scan(control) for control in self.controls]
        symptom, healthy = self._symptom(failing, healthy)
        if symptom is None and self.engine.step_fn is None:
            found = outside(self.episode, self.controls, self.kind)
            if found is not None:
                return replace(found, forward_passes=self.runs)
        if symptom is None and self._has_backward():
            self.backward = True
            failing = self._scan(self.episode)
            symptom, healthy = self._symptom(failing, healthy)
        if symptom is None and healthy and self.kind not in VALUE_KINDS:
            symptom = Watch([each.look for each in healthy]).inner(failing.look)
        found = None if symptom is None else self._explain(failing, healthy, symptom)
        return None if found is None else replace(found, forward_passes=self.runs)

    # -- running ----------------------------------------------------------------------------

    def _run(
        self, observer: Observer | None, edit: Edit | None, episode: Episode | None = None
    ) -> Trace:
        self.runs += 1
        return self.engine.run(episode or self.episode, observer, backward=self.backward, edit=edit)

    def _scan(self, episode: Episode) -> Scanned:
        scan = Scan(self.engine.models)

        def learn(
            call: RecordedCall | None, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Arguments:
            if call is None:
                scan.given("batch", args[0], 0)
            else:
                scan.given("args", args, call.index)
                scan.given("kwargs", kwargs, call.index)
            return args, kwargs

        self.runs += 1
        trace = self.engine.run(episode, scan, backward=self.backward, edit=learn)
        scan.returned(trace.loss)
        return Scanned(scan=scan, trace=trace, look=look(trace, scan.log))

    def _has_backward(self) -> bool:
        return bool(self.episode.backwards) or self.engine.step_fn is not None

    # -- what failed ------------------------------------------------------------------------

    def _symptom(
        self, failing: Scanned, healthy: list[Scanned]
    ) -> tuple[Symptom | None, list[Scanned]]:
        """Return what is bad, and those controls that stay healthy under these weights."""
        sound = [each for each in healthy if _is_sound(each.look)]
        symptom = Watch([each.look for each in sound]).find(failing.look, self.kind)
        if symptom is None and self.kind in VALUE_KINDS:
            symptom = Watch([]).find(failing.look, self.kind)
            if symptom is not None:
                sound = []
        return symptom, sound

    def _starts(self, failing: Scanned, symptom: Symptom) -> list[tuple[Span, int]]:
        """Return the bad values that the search starts from, each with its moment."""
        log = failing.log
        last = len(log.ops)
        if symptom.where == "output":
            wanted = set(symptom.keys)
            return [
                (span, before)
                for position, leaf, span, before in log.outputs
                if (position, leaf) in wanted
            ]
        if symptom.where == "loss":
            return [] if failing.scan.loss is None else [(failing.scan.loss, last)]
        if symptom.where == "inner":
            return [
                (span, visit.ended)
                for visit in log.visits
                for leaf, span in visit.outputs
                if (visit.call, f"{visit.module}:{leaf}") in symptom.keys[:1] and not visit.again
            ]
        table = log.gradients if symptom.where == "gradient" else log.buffers
        return [(table[name], last) for _, name in symptom.keys]

    # -- who did it -------------------------------------------------------------------------

    def _explain(
        self, failing: Scanned, healthy: list[Scanned], symptom: Symptom
    ) -> Culprit | None:
        judge = Judge(
            failing.log,
            Healthy([each.log for each in healthy]),
            zeros=symptom.kind == "zeroed",
            exact=symptom.where == "gradient",
            floor=_floor(failing.look, symptom),
        )

        def is_healthy(
            observer: Observer | None, edit: Edit | None, episode: Episode | None = None
        ) -> bool:
            return not symptom.shows(look(self._run(observer, edit, episode)))

        prover = Prover(judge, self._run, is_healthy)
        found: Culprit | None
        if symptom.where == "exception":
            found = raised(failing.trace, self.episode, self.engine, judge, prover)
        else:
            reached = trace_back(judge, self._starts(failing, symptom))
            candidates = choose(judge, reached, backward=symptom.where == "gradient")
            found = Trial(
                engine=self.engine,
                episode=self.episode,
                controls=self.controls,
                judge=judge,
                symptom=symptom,
                prover=prover,
            ).value(candidates)
        if found is None or found.phase == "parameter":
            return found
        return self._with_sample(found, symptom)

    def _with_sample(self, found: Culprit, symptom: Symptom) -> Culprit:
        answer = RowSearch(
            episode=self.episode,
            controls=self.controls,
            whole=self.engine.step_fn is not None and self.episode.batch is not None,
            cured=lambda edit: not symptom.shows(look(self._run(None, edit))),
        ).find()
        if answer is None:
            return found
        row, donor = answer
        text = (
            f"exchanging sample {row} alone with one of {donor.name} cures the step, exchanging "
            "all others does not"
        )
        evidence = (*found.evidence, Evidence(kind="sample", text=text, value=row))
        return replace(found, sample=row, evidence=evidence)


def _is_sound(seen: Look) -> bool:
    """Can a control serve as one: no exception, no NaN where a failure would show?"""
    return seen.exception is None and not any(
        flags.nan for where in ("output", "loss", "buffer") for flags in seen.get(where).values()
    )


def _floor(seen: Look, symptom: Symptom) -> float:
    """Return the magnitude of a zeroed output, with a margin for what led to it."""
    values = seen.get(symptom.where)
    return max((100 * values[key].absmax for key in symptom.keys if key in values), default=0.0)
