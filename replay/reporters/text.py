"""The verdict as a short note that a colleague would write."""

from __future__ import annotations

import os
import shlex
import unicodedata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from flightrec.stores import FOLDER
from replay.compare import FARTHEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flightrec.types import Verdict

LONGEST = 300
"""Letters of a reason, or of one piece of evidence; an exception's message may be a page."""

SHORTEST = 13
"""Letters of an id that are printed at least: those that tell the time to the millisecond."""

_KINDS = {
    "nan": "a NaN",
    "inf": "an infinity",
    "zeroed": "an output that became zero",
    "collapsed": "an output that became the same everywhere",
    "dead": "a unit that never answers",
    "loss_spike": "a jump of the loss",
    "exploding_grad": "gradients that exploded",
    "vanishing_grad": "gradients that vanished",
    "exception": "an exception",
    "manual": "a capture asked for by hand",
}
_STATUS = {
    "reproduced": "The replay shows it again",
    "not_reproduced": "The replay does not show it",
    "diverged": "The replay does not show it, and other numbers came out than were recorded",
    "unsupported": "The replay cannot show it",
}
_FIDELITY = {
    "bit_exact": "equal to the bit",
    "close": "close, not equal",
    "diverged": "diverged",
}
_GRADIENTS = {
    "unavailable": "gradients cannot be compared",
    "none": "no backward pass was recorded",
}
_PHASES = {
    "data": "in the batch itself, before any module",
    "parameter": "in the weights or buffers, outside the optimizer",
    "forward": "in the forward pass",
    "loss": "in code outside every module, after the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer's step",
}


def render(verdict: Verdict, incident: Any, out: IO[str]) -> None:
    """Write what happened, where, why this is believed, and what to do next."""
    for line in lines(verdict, incident):
        out.write(clean(line) + "\n")


def lines(verdict: Verdict, incident: Any) -> Iterator[str]:
    """Yield the lines of the note, not yet cleaned."""
    kind = _KINDS.get(verdict.kind, verdict.kind)
    yield f"Incident {verdict.incident_id}: {kind}, noticed in step {verdict.noticed_step}."
    reason = getattr(incident, "manifest", {}).get("reason")
    if reason:
        yield f"  recorded because: {_cut(reason)}"
    yield f"{_STATUS[verdict.status]} ({_fidelity(verdict)})."
    if verdict.first_divergence is not None:
        yield f"  first difference: {verdict.first_divergence}"
    if verdict.phase is not None:
        yield ""
        yield from _culprit(verdict)
    if verdict.evidence:
        yield ""
        yield "Evidence:"
        for item in verdict.evidence:
            yield f"  - {_cut(item.text)}"
    yield ""
    yield "Next:"
    for command, purpose in _next(verdict, incident):
        yield f"  {command}   # {purpose}"
    passes = "pass" if verdict.forward_passes == 1 else "passes"
    yield f"({verdict.forward_passes} forward {passes}, {verdict.seconds:.1f} s)"


def clean(text: str) -> str:
    """Replace control and other unprintable characters, which a terminal might obey."""
    return "".join(
        "?" if unicodedata.category(character).startswith("C") else character
        for character in text.replace("\t", " ")
    )


def _fidelity(verdict: Verdict) -> str:
    outputs = f"outputs {_FIDELITY[verdict.fidelity]}"
    gradients = _GRADIENTS.get(verdict.gradients)
    if gradients is None:
        gradients = f"gradients {_FIDELITY[verdict.gradients]}"
    apart = f", at most {verdict.max_ulp} ULP apart" if verdict.max_ulp else ""
    if verdict.max_ulp == FARTHEST:
        apart = ", a finite value against NaN or Inf"
    return f"{outputs}, {gradients}{apart}"


def _culprit(verdict: Verdict) -> Iterator[str]:
    """Say where the first bad value was made."""
    phase = _PHASES[verdict.phase] if verdict.phase else ""
    made = "" if verdict.step == verdict.noticed_step else f", in step {verdict.step} already"
    yield f"It {'rose' if verdict.kind == 'exception' else 'was made'} {phase}{made}."
    if verdict.module is not None:
        name = verdict.module or "(the model itself)"
        kind = f" ({verdict.module_type})" if verdict.module_type else ""
        call = f", call {verdict.call}" if verdict.call else ""
        yield f"  module    {name}{kind}{call}"
    if verdict.op is not None:
        backward = f", the gradient of {verdict.backward_of}" if verdict.backward_of else ""
        yield f"  operator  {verdict.op}{backward}"
    if verdict.source is not None:
        yield f"  line      {verdict.source.file}:{verdict.source.line}"
        if verdict.source.code:
            yield f"            {verdict.source.code.strip()}"
    if verdict.sample is not None:
        cured = any(item.kind == "sample" for item in verdict.evidence)
        what = "another in its place cures the step" if cured else "it alone holds bad values"
        yield f"  sample    {verdict.sample} of the batch: {what}"
    if verdict.index:
        yield f"  element   {list(verdict.index)} is the first bad one"
    yield f"  confirmed {_confirmed(verdict)}"


def _confirmed(verdict: Verdict) -> str:
    """Say what the experiments showed, no more."""
    if not verdict.confirmed:
        return "no"
    shown = {item.kind for item in verdict.evidence if item.value is True}
    if "isolated" in shown:
        return "yes, run alone it does it again"
    if "healed" in shown:
        return "yes, with it made sound the step is healthy"
    if "repeated" in shown:
        return "yes, the step run once more does it again"
    return "yes"


def _next(verdict: Verdict, incident: Any) -> Iterator[tuple[str, str]]:
    """Yield commands that work as they stand, and what each is for."""
    place = _place(verdict, incident)
    searched = any(item.kind == "search" for item in verdict.evidence)
    if verdict.status in ("unsupported", "diverged") or (verdict.phase is None and searched):
        yield f"flightrec show {place}", "what was recorded, and what was not"
    elif verdict.phase is None:
        yield f"flightrec bisect {place}", "name module, operator, line and sample"
    else:
        yield f"flightrec replay {place}", "run the recorded step again"
    yield f"flightrec export {place} --to DIR", "the batch, to look at it"


def _place(verdict: Verdict, incident: Any) -> str:
    """Return the words that choose the incident: its id, and its store or else its file."""
    path = getattr(incident, "path", None)
    if path is None:
        return shlex.quote(verdict.incident_id)
    full = Path(path).absolute()
    day, incidents, root = full.parents[:3] if len(full.parents) > 2 else (full, full, full)
    if incidents.name != FOLDER or not day.name.startswith("date="):
        return shlex.quote(_from_here(full))
    others = {each.stem for each in incidents.glob("date=*/[!.]*.h5")} - {full.stem}
    store = Path(os.environ.get("FLIGHTREC_STORE", "incidents").removeprefix("local://"))
    given = "" if store.absolute() == root else f" --store {shlex.quote(_from_here(root))}"
    return f"{shlex.quote(_short(full.stem, others))}{given}"


def _from_here(full: Path) -> str:
    """Return a path relative to the current folder where it is below."""
    here = Path.cwd()
    return str(full.relative_to(here) if full.is_relative_to(here) else full)


def _short(id: str, others: set[str]) -> str:
    """Return the beginning of an id that no other has."""
    lengths = range(SHORTEST, len(id))
    short = (id[:n] for n in lengths if not any(each.startswith(id[:n]) for each in others))
    return next(short, id)


def _cut(text: str) -> str:
    """Return a text on one line, cut where it is very long."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[:LONGEST] + "..."
