"""Open an incident, run it again, and say how true the replay is and what made it fail."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from flightrec.incident.reader import Incident, open_incident
from flightrec.stores import open_store
from flightrec.trust import Trust
from flightrec.types import Evidence, Verdict
from replay.bisect import bisect
from replay.determinism import Recorded
from replay.engine import Engine
from replay.history import remembered
from replay.loader import device_here, prepare
from replay.measure import Measured, measure
from replay.update import spoiled_by_update

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flightrec.recorded import Code
    from flightrec.stores import Store
    from replay.culprit import Culprit
    from replay.loader import Model, Prepared

log = logging.getLogger("flightrec")

NO_CALLS = Evidence(
    kind="unsupported",
    text="no call of a recorded module was seen in this segment, so nothing can be run: the model "
    "was compiled in place, or the loop uses another one; give step_fn",
)


def load(
    store_or_path: str | Path | Store | Incident,
    incident: str = "latest",
    *,
    model: Model = None,
    device: str | torch.device = "cpu",
    trust: Sequence[str] = (),
    code: Code = "installed",
) -> Replayer:
    """Open an incident and make it ready to run.

    `store_or_path` is a store, its folder or URL, an incident or its file. `model` stands for
    the recorded one: a module, a dict of them, a function that makes either, or the name of
    one as `package.module:factory`; the recorded weights are loaded into it. `trust` names
    packages whose code may be imported. `code="recorded"` takes the user's code as it stands
    in the incident.

    Raises what `Store.open` raises, `UntrustedNameError`, `CodeMissingError`,
    `CannotRebuildError`, and `UsageError` for a device that is not here.
    """
    opened = _open(store_or_path, incident)
    allowed = Trust.for_manifest(opened.manifest, own=opened.own, names=tuple(trust), code=code)

    def make(where: torch.device) -> Prepared:
        return prepare(opened, allowed, model=model, device=where)

    return Replayer(opened, make, device)


def _open(place: str | Path | Store | Incident, incident: str) -> Incident:
    if isinstance(place, Incident):
        return place
    if not isinstance(place, (str, Path)):
        return place.open(incident)
    if Path(place).is_file():
        return open_incident(Path(place))
    return open_store(str(place)).open(incident)


class Replayer:
    """One incident over rebuilt models; `run` judges the replay, `bisect` finds the culprit.

    The numeric settings of the recorded process are in force while something runs, and those
    of this process again afterwards. What cannot be set here stands in `notes`.
    """

    def __init__(
        self,
        incident: Incident,
        make: Callable[[torch.device], Prepared],
        device: str | torch.device = "cpu",
    ) -> None:
        """Replay `incident`; `make` rebuilds its models on a device. See `load`."""
        self.incident = incident
        self.recorded = Recorded(incident.manifest["environment"])
        self.notes: list[str] = []
        """What differs from the recorded run, or could not be brought back."""

        self._make = make
        self._measured: Measured | None = None
        try:
            self._take(device_here(device))
        except torch.OutOfMemoryError:
            self._fall_back()
        for text in self.recorded.differences(self.engine.device):
            self._note(text)

    def run(self) -> Verdict:
        """Run the incident again and compare it with what was recorded.

        `status` says whether the recorded kind of failure shows again, `fidelity` and
        `gradients` how far the numbers agree. The culprit's fields are empty; see `bisect`.
        """
        measured = self._measure()
        comparison, manifest = measured.comparison, self.incident.manifest
        evidence = measured.evidence
        if comparison.outputs != "bit_exact":
            texts = self.recorded.differences(self.engine.device)
            evidence += tuple(Evidence(kind="environment", text=text) for text in texts)
        if self._is_empty():
            evidence += (NO_CALLS,)
        return Verdict(
            incident_id=self.incident.id,
            status="unsupported" if self._is_empty() else measured.status,
            fidelity=comparison.outputs,
            gradients=comparison.gradients,
            max_ulp=comparison.max_ulp,
            kind=manifest["kind"],
            step=manifest["step"],
            noticed_step=manifest["step"],
            rank=manifest["rank"],
            evidence=evidence,
            first_divergence=comparison.first_divergence,
            forward_passes=measured.runs,
            seconds=measured.seconds,
        )

    def bisect(self) -> Verdict:
        """Run the incident again and find what made its first bad value.

        The status is what `run` says. Where nothing is found the culprit's fields stay empty;
        so they do where other numbers came out and the failure did not: recorded gradients that
        are fed into another computation would blame whatever they meet first.
        """
        judged = self.run()
        elsewhere = judged.fidelity == "diverged" and judged.status != "reproduced"
        if self._is_empty() or elsewhere:
            return judged
        started = time.perf_counter()
        prepared = self.prepared
        history = remembered(*self.incident.stats(), self.incident.manifest["steps"])
        with self.recorded.applied():
            culprit = bisect(self.engine, prepared.episode, prepared.controls, judged.kind, history)
        seconds = judged.seconds + time.perf_counter() - started
        if culprit is not None:
            found = replace(_with(culprit, judged), seconds=seconds)
            return self._traced_to_update(found)
        nothing = Evidence(kind="search", text="no single value was found that made it fail")
        return replace(judged, evidence=(*judged.evidence, nothing), seconds=seconds)

    def _traced_to_update(self, found: Verdict) -> Verdict:
        """Say which update made the weights bad, where bad weights are to blame."""
        if found.phase != "parameter":
            return found
        spoiled = spoiled_by_update(self.incident.manifest, *self.incident.stats())
        if spoiled is None:
            return found
        return replace(
            found,
            phase="optimizer",
            step=spoiled.step,
            module=spoiled.module,
            evidence=(spoiled.evidence, *found.evidence),
        )

    def _is_empty(self) -> bool:
        """Is there nothing to run: no call was seen, and no `step_fn` would make one?"""
        return not self.prepared.episode.calls and self.prepared.step_fn is None

    def _take(self, device: torch.device) -> None:
        """Rebuild everything on `device`."""
        with self.recorded.applied():
            self.prepared = prepared = self._make(device)
            self.engine = Engine(
                prepared.models, prepared.device, prepared.step_fn, refresh=prepared.refresh
            )
        for text in prepared.notes:
            self._note(text)

    def _fall_back(self) -> None:
        self._note("the device has too little memory for this; replayed on the CPU instead")
        self._take(torch.device("cpu"))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            log.info("replay of %s: %s", self.incident.id, text)

    def _measure(self) -> Measured:
        """Run the episode, once per device."""
        if self._measured is None:
            self._measured = self._measured_here()
            if self._out_of_memory(self._measured):
                self._fall_back()
                self._measured = self._measured_here()
        return self._measured

    def _measured_here(self) -> Measured:
        with self.recorded.applied():
            return measure(
                self.engine,
                self.prepared.episode,
                self.incident.manifest,
                changed=self.prepared.changed,
            )

    def _out_of_memory(self, measured: Measured) -> bool:
        """Did the device run out of memory where the recorded run did not?"""
        recorded = (self.prepared.episode.exception or {}).get("type", "")
        here = measured.trace.exception
        return (
            self.engine.device.type != "cpu"
            and here is not None
            and here.type.endswith("OutOfMemoryError")
            and not recorded.endswith("OutOfMemoryError")
        )


def _with(culprit: Culprit, judged: Verdict) -> Verdict:
    """Put what was found into a verdict; a failure of the recorded kind is a reproduction."""
    same = culprit.kind == judged.kind or {culprit.kind, judged.kind} <= {"nan", "inf"}
    return replace(
        judged,
        status="reproduced" if same and judged.status == "unsupported" else judged.status,
        kind=culprit.kind,
        phase=culprit.phase,
        step=culprit.step,
        module=culprit.module,
        module_type=culprit.module_type,
        call=culprit.call,
        root_call=culprit.root_call,
        op=culprit.op,
        backward_of=culprit.backward_of,
        source=culprit.source,
        sample=culprit.sample,
        index=culprit.index,
        confirmed=culprit.confirmed,
        evidence=(*culprit.evidence, *judged.evidence),
        forward_passes=judged.forward_passes + culprit.forward_passes,
    )
