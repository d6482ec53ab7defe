"""The manifest of one incident: everything that is known about it, as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flightrec import __version__
from flightrec.detectors import config_of
from flightrec.environment import collect
from flightrec.incident.migrate import FORMAT
from flightrec.recording.capture import Drafter
from flightrec.recording.identity import (
    exception_json,
    optimizers_json,
    rank_and_world,
    scaler_json,
    step_fn_json,
)
from flightrec.tree import number

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch
    from torch import nn

    from flightrec.buffers.ring import Ring, SegmentRecord, StepEntry
    from flightrec.config import Settings
    from flightrec.probes.parameters import ParameterProbe
    from flightrec.probes.state import StateProbe
    from flightrec.protocols import Detector
    from flightrec.recording.capture import Draft
    from flightrec.recording.identity import Run
    from flightrec.rng import Generators
    from flightrec.types import Finding, Json, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """What went wrong, as far as the run can tell."""

    id: str
    kind: str
    reason: str
    finding: Finding | None
    """The finding that stands for the incident; None for an exception or by request."""

    findings: tuple[Finding, ...]
    fingerprint: str
    error: BaseException | None


class Dossier:
    """Puts together what stays the same over a run with what belongs to one failure."""

    def __init__(
        self,
        roots: Mapping[str, nn.Module],
        optimizers: Mapping[str, Any],
        settings: Settings,
        run: Run,
        *,
        scaler: Any,
        step_fn: Callable[..., Any] | None,
        generators: Generators,
        state: StateProbe,
        parameters: ParameterProbe,
        detectors: Sequence[Detector],
    ) -> None:
        """Keep what every incident of the run shares."""
        self._roots = roots
        self._optimizers = optimizers
        self._settings = settings
        self._run = run
        self._scaler = scaler
        self._step_fn = step_fn
        self._step_fn_json = step_fn_json(step_fn)
        self._generators = generators
        self._state = state
        self._parameters = parameters
        self._detectors = detectors

    def build(
        self,
        what: What,
        record: StepRecord,
        entry: StepEntry,
        segment: SegmentRecord,
        ring: Ring,
        *,
        gradients: list[tuple[str, torch.Tensor]],
        gradients_unavailable: str | None,
        unrecorded: Mapping[str, str],
        dropped: Counter[str],
    ) -> Draft:
        """Copy the incident out of the live run; runs on the thread of the run."""
        drafter = Drafter(
            self._roots,
            self._generators,
            weights=self._settings.weights != "none",
            max_bytes=self._settings.incident_bytes,
            gradient_bytes=self._settings.device_bytes,
            also=() if self._step_fn is None else (self._step_fn,),
        )
        model = drafter.model()
        now = self._state.read()
        newest = drafter.segment(segment, entry, now)
        newest["gradients"] = drafter.gradients(gradients)
        newest["gradients_unavailable"] = newest["gradients_unavailable"] or gradients_unavailable
        if what.error is not None:
            newest["exception"] = exception_json(what.error)
        if segment.updated:
            drafter.miss("weights before the update", "it showed after the optimizer's step")
        rank, world = rank_and_world()
        records = (*ring.history, record)
        site = what.finding.site if what.finding is not None else None
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "flightrec": __version__,
            "id": what.id,
            "created": datetime.now(UTC).isoformat(),
            "kind": what.kind,
            "step": record.step,
            "fingerprint": what.fingerprint,
            "reason": what.reason,
            "detector": None if what.finding is None else what.finding.detector,
            "site": None if site is None else str(site),
            "rank": rank,
            "world_size": world,
            "run": self._run.as_json(),
            "findings": _findings(what.findings),
            "environment": collect().as_json(),
            "options": {**self._settings.to_json(), "scaler": scaler_json(self._scaler)},
            "detectors": [config_of(detector) for detector in self._detectors],
            "model": model,
            "step_fn": self._step_fn_json,
            "optimizers": optimizers_json(self._optimizers, self._parameters.named),
            "segment": newest,
            "controls": drafter.controls(
                [kept for kept in ring if not kept.bad and kept is not entry and kept.calls], now
            ),
            "steps": _steps(records),
            "not_captured": [
                *drafter.not_captured,
                *({"what": name, "why": why} for name, why in unrecorded.items()),
            ],
            "dropped": dict(dropped),
            "notes": self._settings.not_yet(),
        }
        return drafter.draft(what.id, manifest, records)


def _findings(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "detector": finding.detector,
            "site": None if finding.site is None else str(finding.site),
            "step": finding.step,
            "value": number(finding.value),
            "limit": number(finding.limit),
            "kind": finding.kind,
            "level": finding.level,
            "text": finding.text,
        }
        for finding in findings
    ]


def _steps(records: Iterable[StepRecord]) -> list[dict[str, Any]]:
    def optional(value: float | None) -> Json:
        return None if value is None else number(value)

    return [
        {
            "step": record.step,
            "loss": optional(record.loss),
            "grad_norm": optional(record.grad_norm),
            "lr": optional(record.lr),
            "updated": record.updated,
            "seconds": number(record.seconds),
            "times": {name: number(value) for name, value in record.times.items()},
            "scalars": {name: number(value) for name, value in record.scalars.items()},
        }
        for record in records
    ]
