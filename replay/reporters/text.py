"""The verdict as a short note that a colleague would write."""

from __future__ import annotations

import shlex
import unicodedata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flightrec.types import Verdict

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
        yield f"  recorded because: {reason}"
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
            yield f"  - {item.text}"
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
    return f"{outputs}, {gradients}{apart}"


def _culprit(verdict: Verdict) -> Iterator[str]:
    """Say where the first bad value was made."""
    phase = _PHASES[verdict.phase] if verdict.phase else ""
    made = "" if verdict.step == verdict.noticed_step else f", in step {verdict.step} already"
    yield f"It was made {phase}{made}."
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
        yield f"  sample    {verdict.sample} of the batch: another in its place cures the step"
    if verdict.index is not None:
        yield f"  element   {list(verdict.index)} is the first bad one"
    sure = "yes, run alone it does it again" if verdict.confirmed else "no"
    yield f"  confirmed {sure}"


def _next(verdict: Verdict, incident: Any) -> Iterator[tuple[str, str]]:
    """Yield commands that work as they stand, and what each is for."""
    place = shlex.quote(_place(verdict, incident))
    if verdict.status == "unsupported":
        yield f"flightrec show {place}", "what was recorded, and what was not"
    elif verdict.phase is None:
        yield f"flightrec bisect {place}", "name module, operator, line and sample"
    else:
        yield f"flightrec replay {place}", "run the recorded step again"
    yield f"flightrec export {place} --to DIR", "the batch, to look at it"


def _place(verdict: Verdict, incident: Any) -> str:
    """Return the incident's file, from here where it is below, or its id where it has none."""
    path = getattr(incident, "path", None)
    if path is None:
        return verdict.incident_id
    full, here = Path(path).absolute(), Path.cwd()
    return str(full.relative_to(here) if full.is_relative_to(here) else full)
