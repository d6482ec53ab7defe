"""Decides whether what was found becomes an incident, and hands it on to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightrec.incident.layout import new_id
from flightrec.recording.dossier import What
from flightrec.recording.judge import Facts, fingerprint
from flightrec.recording.meter import finite

if TYPE_CHECKING:
    from collections import Counter

    import torch

    from flightrec.buffers.ring import Ring
    from flightrec.probes.parameters import ParameterProbe
    from flightrec.recording.dossier import Dossier
    from flightrec.recording.filing import Filing
    from flightrec.recording.judge import Judge
    from flightrec.recording.meter import Meter
    from flightrec.recording.tape import Tape
    from flightrec.types import Finding, StepRecord


class Desk:
    """What is known about the running step, from the first finding to the draft.

    Per step: `begin_step`, then `look` and `keep_gradients` as often as there is something new,
    and `draft` once at the latest moment at which the weights that failed are still there.
    """

    def __init__(
        self,
        *,
        tape: Tape,
        meter: Meter,
        ring: Ring,
        judge: Judge,
        parameters: ParameterProbe,
        dossier: Dossier,
        filing: Filing,
        dropped: Counter[str],
        trains: bool,
    ) -> None:
        """Work with the parts of one session."""
        self._tape = tape
        self._meter = meter
        self._ring = ring
        self._judge = judge
        self._parameters = parameters
        self._dossier = dossier
        self._filing = filing
        self.trains = trains
        """Is there an optimizer, as far as is known?"""

        self._dropped = dropped
        self._asked: tuple[str, str] | None = None
        self._carried: list[Finding] = []
        self.begin_step()

    def begin_step(self) -> None:
        """Forget the step before, but not a capture that was asked for."""
        self._judge.begin_step()
        self.made: list[str] = []
        """Incidents of this step."""

        self.pending = bool(self._carried)
        """Was something found that has to be captured?"""

        self._judge.findings += self._carried
        self._carried = []

        self.suspicious = False
        """Is something pending, or a gradient not finite that a scaler may still skip?"""

        self._learning = False
        self._looked: object = None
        self._looked_rows = 0
        self._gradients: list[tuple[str, torch.Tensor]] | None = None

    def ask(self, reason: str) -> str:
        """Ask for an incident of the running or the next step; return its id."""
        incident = new_id()
        self._asked = (incident, reason)
        return incident

    @property
    def wanted(self) -> bool:
        """Is an incident wanted of the weights there are now?"""
        return self.pending or (self._asked is not None and not self._tape.segment.updated)

    def carry(self) -> bool:
        """Leave a parameter that went bad in the update to the next segment; is it that?

        The weights before the update are gone, and this step was healthy up to there: only the
        next forward, with the weights as they are now, can be run again and show it.
        """
        found = [finding for finding in self._judge.findings if finding.level == "capture"]
        sites = [finding.site for finding in found]
        late = self.pending and self._tape.segment.updated
        if not late or any(site is None or site.kind != "param" for site in sites):
            return False
        self.pending, self._carried = False, found
        return True

    @property
    def waiting(self) -> bool:
        """Is something carried to a step that has not come?"""
        return bool(self._carried)

    def keep_gradients(self) -> None:
        """Copy the gradients as a backward left them, where they may be needed."""
        self._gradients = None
        if self.suspicious:
            self._gradients = [(n, g.detach().clone()) for n, g in self._parameters.gradients()]

    def end_step(self, record: StepRecord) -> bool:
        """Close what ended with this step; return whether the step was bad."""
        return self._judge.end_step(record)

    def look(self, *, update: bool) -> StepRecord:
        """Read the slab and ask the detectors, where there is anything new to ask about."""
        self._tape.slab.read()
        record = self._meter.record()
        new = slice(self._looked_rows, None)
        self._looked_rows = self._tape.slab.count
        fresh = (self._tape.backwards, len(self._tape.segment.calls), record.loss)
        if fresh == self._looked and not self.suspicious and finite(record.stats_SK[new]):
            return record
        self._looked = fresh
        facts = Facts(
            {
                "update": lambda: update,
                "backward": lambda: self._tape.backwards > 0,
                "learning_from_zero": self._learns_from_zero,
                "trains": lambda: self.trains,
            }
        )
        if self._judge.look(self._ring.history, record, facts):
            self.pending = True
        self.suspicious = self.pending or self._judge.bad_gradient(record)
        return record

    def _learns_from_zero(self) -> bool:
        """Ask the parameters; after the update they no longer show it, so a yes is kept."""
        self._learning = self._learning or self._parameters.learns_from_zero()
        return self._learning

    def draft(self, error: BaseException | None) -> str | None:
        """Copy the incident out of the live run; return its id, None where it is only counted."""
        record = self._meter.finished(self._meter.record(), self._tape.elapsed())
        self.pending = False
        asked, self._asked = self._asked, None
        kind, finding, reason = self._what(record, error, asked)
        site = finding.site if finding is not None else None
        why = self._filing.refuses()
        if asked is None and why is None:
            why = self._judge.repeats(kind, site)
        if why is not None:
            self._dropped[f"{kind}: {why}"] += 1
            return None
        incident = new_id() if asked is None else asked[0]
        gradients, unavailable = self._kept_gradients()
        entry = self._tape.entry
        assert entry is not None
        draft = self._dossier.build(
            What(
                id=incident,
                kind=kind,
                reason=reason,
                finding=finding,
                findings=tuple(self._judge.findings),
                fingerprint=fingerprint(kind, site),
                error=error,
            ),
            record,
            entry,
            self._tape.segment,
            self._ring,
            gradients=gradients,
            gradients_unavailable=unavailable,
            unrecorded=self._tape.not_captured,
            dropped=self._dropped,
        )
        if not self._filing.submit(draft, _where(finding, error)):
            return None
        self._judge.report(kind, site, incident)
        self.made.append(incident)
        return incident

    def _what(
        self, record: StepRecord, error: BaseException | None, asked: tuple[str, str] | None
    ) -> tuple[str, Finding | None, str]:
        """Return kind, finding and reason of what is to be drafted."""
        if any(finding.level == "capture" for finding in self._judge.findings):
            kind, finding = self._judge.verdict(record)
            reason = finding.text or f"{finding.detector}: {finding.value} (limit {finding.limit})"
            return kind, finding, reason
        if isinstance(error, Exception):
            return "exception", None, f"{type(error).__name__} left the step"
        assert asked is not None
        return "manual", None, asked[1]

    def _kept_gradients(self) -> tuple[list[tuple[str, torch.Tensor]], str | None]:
        """Return gradients as the last backward left them, or none and why."""
        if not self._tape.segment.backwards:
            return [], None
        if self._gradients is not None:
            return self._gradients, None
        if self._parameters.versions() != self._tape.gradient_versions:
            return [], (
                "gradients were changed between the backward and the capture "
                "(clipped, unscaled or cleared)"
            )
        return list(self._parameters.gradients()), None


def _where(finding: Finding | None, error: BaseException | None) -> str:
    """Say for the log where it showed."""
    if finding is not None and finding.site is not None:
        site = finding.site
        return f"{site.module or 'the model'} ({site.kind}{f' {site.leaf}' if site.leaf else ''})"
    if finding is not None:
        return f"the step ({finding.text})"
    return "the step" if error is None else f"the step ({type(error).__name__})"
