"""Name what made the first bad value of a step, and show by experiments that it did."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flightrec.types import Evidence
from replay.choice import choose
from replay.history import contradicts
from replay.incoming import without_bad
from replay.norm import Healthy, Judge
from replay.observing import Bench
from replay.proof import Prover
from replay.raising import outside, raised
from replay.sample import RowSearch
from replay.search import trace_back
from replay.symptom import Watch
from replay.trial import Trial
from replay.values import bad_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.culprit import Culprit
    from replay.engine import Engine
    from replay.episode import Episode
    from replay.history import Remembered
    from replay.observing import Scanned
    from replay.oplog import Span
    from replay.symptom import Look, Symptom

CONTROLS = 3
"""Healthy steps that are scanned, newest first."""

INNER = 8
"""Bad outputs of inner modules that are looked into where nothing bad left the step."""

VALUE_KINDS = ("nan", "inf", "zeroed")
"""Kinds of incident that a bad value opened."""


def bisect(
    engine: Engine,
    episode: Episode,
    controls: Sequence[Episode] = (),
    kind: str = "manual",
    history: Sequence[Remembered] = (),
) -> Culprit | None:
    """Find the producer of the first bad value of `episode`; None where nothing is bad.

    `controls` are healthy earlier steps, oldest first, replayed through the same weights;
    `kind` is that of the incident; `history` what was recorded of earlier steps. For kinds that
    no bad value opened, the first non-finite value is looked for, then the first zeroed output
    that healthy steps did not have as far as is known.
    """
    return Bisection(engine, episode, controls, kind, history).culprit()


class Bisection:
    """One search."""

    def __init__(
        self,
        engine: Engine,
        episode: Episode,
        controls: Sequence[Episode],
        kind: str,
        history: Sequence[Remembered],
    ) -> None:
        """Prepare to search."""
        self.engine = engine
        self.episode = episode
        self.controls = list(reversed(controls))[:CONTROLS]
        self.kind = kind
        self.history = {
            each.step: (each, each.look(episode.calls, engine.models)) for each in history
        }
        self.bench = Bench(engine, episode)
        self.contradicted = False
        """Did a control fail under these weights although it did not in the run?"""

    def culprit(self) -> Culprit | None:
        """Run the search: what left the forward pass, then the backward pass, then inside."""
        failing = self.bench.scan(self.episode)
        healthy = self._healthy_steps()
        found = self._search(failing, healthy)
        if found is None and self.engine.step_fn is None:
            found = outside(self.episode, self.controls, self.kind)
        if found is None and (self.episode.backwards or self.engine.step_fn is not None):
            found = self._search_backward(healthy)
        if found is None and self.kind != "exception":
            found = self._search_inside(failing, healthy)
        return None if found is None else replace(found, forward_passes=self.bench.runs)

    def _search_backward(self, healthy: list[Scanned]) -> Culprit | None:
        """Run the backward pass too and explain what is bad then."""
        self.bench.backward = True
        if self.engine.step_fn is not None:
            healthy = self._healthy_steps()
        for episode in filter(None, (without_bad(self.episode), self.episode)):
            self.bench.episode = episode
            found = self._search(self.bench.scan(episode), healthy)
            if found is not None:
                return found
        return None

    # -- what failed ------------------------------------------------------------------------

    def _healthy_steps(self) -> list[Scanned]:
        """Scan the controls; return those that are healthy under the failing weights too."""
        sound = []
        for control in self.controls:
            scanned = self.bench.scan(control)
            known = self.history.get(control.step)
            if known is not None and contradicts(known[1], scanned.look, moved=known[0].moved):
                self.contradicted = True
            elif known is not None or _is_sound(scanned.look):
                sound.append(scanned)
        return [each for each in sound if each.look.exception is None]

    def _watch(self, healthy: Sequence[Scanned]) -> Watch:
        return Watch(
            [*(each.look for each in healthy), *(seen for _, seen in self.history.values())]
        )

    def _search(self, failing: Scanned, healthy: list[Scanned]) -> Culprit | None:
        """Explain what is bad in outputs, loss, gradients or buffers."""
        symptom = self._watch(healthy).find(failing.look, self.kind)
        if symptom is None and self.kind in VALUE_KINDS:
            healthy = []
            symptom = Watch([]).find(failing.look, self.kind)
        return None if symptom is None else self._explain(failing, healthy, symptom)

    def _search_inside(self, failing: Scanned, healthy: list[Scanned]) -> Culprit | None:
        """Explain what is bad inside although nothing bad left the step.

        Where nothing is known of healthy steps, a NaN that was in a weight is told, since no
        healthy step has one; anything else may be usual.
        """
        compared = bool(healthy) or self.contradicted
        symptoms = [
            each
            for each in self._watch(healthy).inner(failing.look, known=bool(healthy))
            if (compared or each.kind == "nan") and self._fits(each)
        ]
        for symptom in symptoms[:INNER]:
            found = self._explain(failing, healthy, symptom)
            if found is not None and (compared or found.phase == "parameter"):
                return found
        return None

    def _fits(self, symptom: Symptom) -> bool:
        """Can this be what an incident of this kind is about?"""
        return self.kind not in VALUE_KINDS or (symptom.kind == "zeroed") == (self.kind == "zeroed")

    # -- who did it -------------------------------------------------------------------------

    def _explain(
        self, failing: Scanned, healthy: Sequence[Scanned], symptom: Symptom
    ) -> Culprit | None:
        judge = Judge(
            failing.log,
            Healthy([each.log for each in healthy]),
            zeros=symptom.kind == "zeroed",
            exact=symptom.where == "gradient",
            floor=_floor(failing.look, symptom),
        )
        bench = self.bench.judged_by(symptom)
        prover = Prover(judge, bench)
        found: Culprit | None
        if symptom.where == "exception":
            found = raised(failing.trace, self.episode, self.engine, judge, prover)
        else:
            reached = trace_back(judge, _starts(failing, symptom))
            candidates = choose(judge, reached, backward=symptom.where == "gradient")
            found = Trial(
                engine=self.engine,
                episode=self.episode,
                controls=self.controls,
                judge=judge,
                symptom=symptom,
                prover=prover,
            ).value(candidates)
        if found is None or symptom.kind == "zeroed":
            return found  # any row of another batch is enough to make a zero go away
        sound = {id(each.episode) for each in healthy}
        donors = [each for each in self.controls if id(each) in sound]
        whole = self.engine.step_fn is not None and self.episode.batch is not None
        rows = RowSearch(
            episode=self.bench.episode,
            controls=donors or self.controls[:1],
            whole=whole,
            cured=lambda edit: bench.is_healthy(edit=edit),
            hints=_bad_rows(failing, symptom),
        )
        return _with_sample(found, rows)


def _with_sample(found: Culprit, rows: RowSearch) -> Culprit:
    answer = rows.find()
    if answer is None:
        return found
    row, donor = answer
    text = (
        f"exchanging sample {row} alone with one of {donor.name} cures the step, exchanging "
        "all others does not"
    )
    evidence = (*found.evidence, Evidence(kind="sample", text=text, value=row))
    return replace(found, sample=row, evidence=evidence)


def _bad_rows(failing: Scanned, symptom: Symptom) -> list[frozenset[int]]:
    """Return the rows at which outputs are not finite, for each bad output of more than one."""
    found = []
    for position, leaf in symptom.keys if symptom.where == "output" else ():
        tensor = dict(failing.trace.outputs[position])[leaf]
        if tensor.dim() and tensor.shape[0] > 1:
            found.append(frozenset(bad_rows(tensor)))
    return found


def _starts(failing: Scanned, symptom: Symptom) -> list[tuple[Span, int]]:
    """Return the bad values that the search starts from, each with its moment."""
    log = failing.log
    last = len(log.ops)
    if symptom.where == "output":
        wanted = set(symptom.keys)
        return [(span, at) for place, leaf, span, at in log.outputs if (place, leaf) in wanted]
    if symptom.where == "loss":
        return [] if failing.scan.loss is None else [(failing.scan.loss, last)]
    if symptom.where == "inner":
        return [
            (span, visit.ended)
            for visit in log.visits
            for leaf, span in visit.outputs
            if (visit.call, f"{visit.module}:{leaf}") in symptom.keys and not visit.again
        ]
    table = log.gradients if symptom.where == "gradient" else log.buffers
    return [(table[name], last) for _, name in symptom.keys]


def _is_sound(seen: Look) -> bool:
    """Can a control of which nothing was recorded serve as one: no NaN where it would show?"""
    return not any(
        flags.nan for where in ("output", "loss", "buffer") for flags in seen.get(where).values()
    )


def _floor(seen: Look, symptom: Symptom) -> float:
    """Return the magnitude of a zeroed output, with a margin for what led to it."""
    values = seen.get(symptom.where)
    return max((100 * values[key].absmax for key in symptom.keys if key in values), default=0.0)
