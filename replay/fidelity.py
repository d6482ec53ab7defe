"""Compare a trace with what was recorded: outputs, loss and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flightrec.tree import tensor_hash
from flightrec.types import Site, public_name
from replay.bits import to_words, word_type
from replay.compare import APART, EXACT, Distance, distance, worst

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

    from flightrec.types import Fidelity, GradientFidelity
    from replay.engine import Trace
    from replay.episode import Episode, RecordedCall, RecordedGradient, RecordedOutput

OUTSIDE = (
    "a gradient reached parameters by a path outside the recorded calls (a penalty on weights, "
    "a loss on hooked activations, create_graph, an output changed in place); give step_fn"
)
"""Why gradients differ although forward and replay are exact."""

LEFT_OVER = (
    "gradients were there before the first backward of the segment and add up with it "
    "(zero_grad not called, or gradients of earlier steps); give step_fn"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What comparing bits showed."""

    outputs: Fidelity
    """Outputs of all calls, and the loss where a `step_fn` computed it again."""

    gradients: GradientFidelity
    max_ulp: int = 0
    """Over everything that was compared by value."""

    first_divergence: str | None = None
    """Site of the first tensor that is not equal to the bit."""

    reason: str | None = None
    """Why gradients are unavailable."""

    compared: int = 0
    """Tensors compared, by value or by hash."""

    by_hash: int = 0
    """Those of which only a hash was recorded; two NaN of other bits look different there."""


@dataclass(frozen=True, slots=True)
class _Measured:
    site: str
    distance: Distance
    by_hash: bool


def compare(episode: Episode, trace: Trace, *, again: Trace | None = None) -> Comparison:
    """Compare `trace` with `episode`, the loss included where a `step_fn` computed it.

    `again` is the trace of a second run. Where both runs agree and outputs are exact but
    gradients are not, these entered by a path that was not recorded: they are unavailable.
    """
    outputs = list(_outputs(episode, trace))
    gradients = list(_gradients(episode, trace))
    exact = worst(each.distance.fidelity for each in outputs)
    judged: GradientFidelity = worst(each.distance.fidelity for each in gradients)
    unavailable = None if trace.whole else episode.gradients_unavailable
    if not gradients:
        judged = "none"
    elif exact == "bit_exact" != judged and _by_another_path(trace, again):
        unavailable = unavailable or (LEFT_OVER if episode.grads_present else OUTSIDE)
    if unavailable is not None:
        judged, gradients = "unavailable", []
    everything = outputs + gradients
    return Comparison(
        outputs=exact,
        gradients=judged,
        max_ulp=max((each.distance.max_ulp for each in everything), default=0),
        first_divergence=next(
            (each.site for each in everything if each.distance.fidelity != "bit_exact"), None
        ),
        reason=unavailable if judged == "unavailable" else None,
        compared=len(everything),
        by_hash=sum(each.by_hash for each in everything),
    )


def agree(one: Trace, other: Trace) -> bool:
    """Did two runs give the same outputs and the same loss, to the bit?"""
    return (
        len(one.outputs) == len(other.outputs)
        and all(map(_same_tensors, map(dict, one.outputs), map(dict, other.outputs)))
        and _same_tensors(_named_loss(one), _named_loss(other))
    )


def _by_another_path(trace: Trace, again: Trace | None) -> bool:
    """Do two runs without the loss code agree on gradients? Asked where the outputs are exact."""
    if again is None or trace.whole:
        return False
    return _same_tensors(trace.gradients, again.gradients)


def _named_loss(trace: Trace) -> dict[str, torch.Tensor]:
    return {} if trace.loss is None else {"loss": trace.loss}


def _same_tensors(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        _distance(tensor, other[name]).fidelity == "bit_exact" for name, tensor in one.items()
    )


def _outputs(episode: Episode, trace: Trace) -> Iterator[_Measured]:
    nth: dict[tuple[int, str], int] = {}
    for position, call in enumerate(episode.calls):
        key = (call.step, call.public_name)
        number = nth[key] = nth.get(key, -1) + 1
        replayed = dict(trace.outputs[position]) if position < len(trace.outputs) else {}
        for recorded in call.outputs:
            if recorded.changed or (position, recorded.leaf) in trace.changed:
                continue
            yield _measure(
                _site(call, number, recorded.leaf), recorded, replayed.get(recorded.leaf)
            )
    if trace.loss is not None and episode.loss is not None:
        site = str(Site(module="", kind="loss"))
        yield _Measured(site, _distance(episode.loss, trace.loss), by_hash=False)


def _site(call: RecordedCall, number: int, leaf: str) -> str:
    return str(Site(module=call.public_name, kind="output", leaf=leaf, call=number))


def _gradients(episode: Episode, trace: Trace) -> Iterator[_Measured]:
    recorded = {each.parameter: each for each in episode.gradients}
    for parameter, gradient in recorded.items():
        yield _measure(_gradient_site(parameter), gradient, trace.gradients.get(parameter))
    if recorded:
        for parameter in trace.gradients.keys() - recorded.keys():
            yield _Measured(_gradient_site(parameter), APART, by_hash=False)


def _gradient_site(parameter: str) -> str:
    root, _, name = parameter.partition(":")
    owner, _, local = name.rpartition(".")
    return str(Site(module=public_name(root, owner), kind="param_grad", leaf=local))


def _measure(
    site: str, recorded: RecordedOutput | RecordedGradient, replayed: torch.Tensor | None
) -> _Measured:
    """Compare by value where there is one, else by hash."""
    if replayed is None:
        return _Measured(site, APART, by_hash=False)
    if recorded.value is not None:
        return _Measured(site, _distance(recorded.value(), replayed), by_hash=False)
    equal = not recorded.hash or recorded.hash == tensor_hash(replayed)
    return _Measured(site, EXACT if equal else Distance(fidelity="diverged"), by_hash=True)


def _distance(recorded: torch.Tensor, replayed: torch.Tensor) -> Distance:
    if recorded.dtype != replayed.dtype or recorded.shape != replayed.shape:
        return APART
    return distance(to_words(recorded), to_words(replayed), word_type(recorded))
