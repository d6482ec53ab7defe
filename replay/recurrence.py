"""Does what was recorded as the failure show again in a re-execution?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flightrec.tree import parse_number
from flightrec.types import Site, public_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import nn

    from replay.engine import Trace
    from replay.episode import Episode
    from replay.fidelity import Comparison

AS_RECORDED = (
    "the {what} is as recorded: it follows from code outside the recorded calls, which was not "
    "run, and all that these calls gave to it is equal to the bit (give step_fn to run it)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The answer, and why."""

    again: bool | None
    """None where it cannot be told from what was recorded."""

    text: str
    """One sentence for a person."""


def recurs(
    manifest: Mapping[str, Any],
    episode: Episode,
    trace: Trace,
    comparison: Comparison,
    models: Mapping[str, nn.Module],
) -> Recurrence:
    """Look in `trace` for the kind of finding that opened the incident, at its kind of site."""
    kind = manifest["kind"]
    if kind == "exception":
        return _exception(episode, trace)
    site = None if manifest.get("site") is None else Site.parse(manifest["site"])
    if trace.exception is not None:
        text = f"the replay ended with {trace.exception.type}: {trace.exception.message}"
        return Recurrence(again=None, text=text)
    if site is not None and site.kind == "param" and _after_update(manifest):
        text = f"the incident holds the weights after the update that spoiled {_name(site)}"
        return Recurrence(again=None, text=f"{text}, not those of the step")
    if kind in ("nan", "inf") and site is not None:
        return _nonfinite(kind, site, episode, trace, comparison, models)
    if kind == "zeroed" and site is not None and site.kind == "output":
        return _zeroed(site, manifest, episode, trace)
    if kind == "zeroed" and trace.gradients:
        return _zero_gradients(trace)
    return _without_value(kind, comparison)


def _exception(episode: Episode, trace: Trace) -> Recurrence:
    """Compare types; one that rose outside every call cannot rise again without `step_fn`."""
    recorded = (episode.exception or {}).get("type", "")
    name = recorded.rpartition(".")[2]
    if trace.exception is not None:
        same = trace.exception.type.rpartition(".")[2] == name
        text = f"the replay raised {trace.exception.type}: {trace.exception.message}"
        return Recurrence(again=same, text=text)
    if not any(call.raised for call in episode.calls) and not trace.whole:
        text = f"{name} rose outside the recorded calls, in code that was not run again"
        return Recurrence(again=None, text=f"{text}; give step_fn")
    return Recurrence(again=False, text=f"nothing was raised; {name} was recorded")


def _nonfinite(
    kind: str,
    site: Site,
    episode: Episode,
    trace: Trace,
    comparison: Comparison,
    models: Mapping[str, nn.Module],
) -> Recurrence:
    if site.kind == "loss" and trace.loss is None:
        return _as_recorded(comparison, what="loss")
    candidates = dict(tensors_at(site, episode, trace, models))
    name = _name(site)
    exact = candidates.get(str(site))
    for tensor in candidates.values() if exact is None else (exact,):
        if kind == ("nan" if _has_nan(tensor) else "inf" if _has_inf(tensor) else ""):
            return Recurrence(again=True, text=f"{name} is {kind} again")
    if site.kind == "param":
        return _as_recorded(comparison, what=f"{name} after the update")
    if site.kind == "param_grad" and comparison.gradients == "unavailable":
        return Recurrence(again=None, text=f"{name} cannot be computed again: {comparison.reason}")
    return Recurrence(again=False, text=f"{name} is not {kind} in the replay")


def _zero_gradients(trace: Trace) -> Recurrence:
    if any(_absmax(gradient) for gradient in trace.gradients.values()):
        return Recurrence(again=False, text="some gradients are not zero in the replay")
    return Recurrence(again=True, text="every gradient is exactly zero again")


def _zeroed(site: Site, manifest: Mapping[str, Any], episode: Episode, trace: Trace) -> Recurrence:
    limit = max(
        (parse_number(found["limit"]) for found in manifest["findings"] if _is_at(found, site)),
        default=0.0,
    )
    candidates = {
        name: tensor
        for name, tensor in tensors_at(site, episode, trace, {})
        if tensor.numel() >= 2 and tensor.is_floating_point()
    }
    exact = candidates.get(str(site))
    for name, tensor in candidates.items() if exact is None else ((str(site), exact),):
        largest = _absmax(tensor)
        if largest <= limit:
            text = f"{_name(Site.parse(name))} is zero again: absmax {largest:.3g}"
            return Recurrence(again=True, text=text)
    return Recurrence(again=False, text=f"{_name(site)} is not zero in the replay")


def _as_recorded(comparison: Comparison, *, what: str) -> Recurrence:
    """Take a value that is not computed again as recorded, where all that enters it is exact."""
    if _exact(comparison):
        return Recurrence(again=True, text=AS_RECORDED.format(what=what))
    text = f"the {what} follows from code outside the recorded calls, and these gave other values"
    return Recurrence(again=False, text=text)


def _exact(comparison: Comparison) -> bool:
    return comparison.outputs == "bit_exact" and comparison.gradients != "diverged"


def _without_value(kind: str, comparison: Comparison) -> Recurrence:
    """Judge a kind that no bad value opened by the numbers it was found in."""
    if not _exact(comparison):
        return Recurrence(again=False, text="the replay gave other values than were recorded")
    if kind == "manual":
        return Recurrence(again=True, text="what was captured by request runs again")
    if kind.endswith("_grad") and comparison.gradients == "bit_exact":
        return Recurrence(again=True, text="the gradients are those that were found fault with")
    return _as_recorded(comparison, what=kind.replace("_", " "))


def _after_update(manifest: Mapping[str, Any]) -> bool:
    """Were the weights of the step gone when its failure showed?"""
    gaps = manifest.get("not_captured", ())
    return any(gap["what"] == "weights before the update" for gap in gaps)


def _name(site: Site) -> str:
    """Say a site in words: `output of the model`, `buffer norm.mean`."""
    if site.kind in ("output", "loss"):
        leaf = f" {site.leaf}" if site.leaf else ""
        where = f" of {site.module or 'the model'}" if site.kind == "output" else ""
        return f"{site.kind}{leaf}{where}"
    kind = {"param": "parameter", "param_grad": "gradient of"}.get(site.kind, site.kind)
    return f"{kind} {'.'.join(part for part in (site.module, site.leaf) if part)}"


def tensors_at(
    site: Site, episode: Episode, trace: Trace, models: Mapping[str, nn.Module]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (text of the site, tensor) of everything in the trace of that kind of site."""
    if site.kind == "loss" and trace.loss is not None:
        yield str(site), trace.loss
    elif site.kind == "output":
        nth: dict[tuple[int, str], int] = {}
        for call, outputs in zip(episode.calls, trace.outputs, strict=False):
            key = (call.step, call.public_name)
            number = nth[key] = nth.get(key, -1) + 1
            for leaf, tensor in outputs:
                found = Site(module=call.public_name, kind="output", leaf=leaf, call=number)
                yield str(found), tensor
    elif site.kind == "buffer":
        yield from _named(trace.buffers.items(), site)
    elif site.kind == "param_grad":
        yield from _named(trace.gradients.items(), site)
    elif site.kind == "param":
        parameters = (
            (f"{root}:{name}", parameter.detach())
            for root, model in models.items()
            for name, parameter in model.named_parameters()
        )
        yield from _named(parameters, site)


def _named(
    tensors: Iterable[tuple[str, torch.Tensor]], site: Site
) -> Iterator[tuple[str, torch.Tensor]]:
    for key, tensor in tensors:
        root, _, name = key.partition(":")
        owner, _, local = name.rpartition(".")
        module = public_name(root, owner)
        yield str(Site(module=module, kind=site.kind, leaf=local, call=site.call)), tensor


def _is_at(finding: Mapping[str, Any], site: Site) -> bool:
    return finding.get("kind") == "zeroed" and finding.get("site") == str(site)


def _values(tensor: torch.Tensor) -> torch.Tensor:
    """Return the stored values of a tensor in a type that can be reduced."""
    values = tensor._values() if tensor.layout == torch.sparse_coo else tensor.detach()
    if values.dtype.is_complex:
        values = torch.view_as_real(values.resolve_conj())
    return values.float() if values.element_size() == 1 else values


def _has_nan(tensor: torch.Tensor) -> bool:
    return bool(torch.isnan(_values(tensor)).any())


def _has_inf(tensor: torch.Tensor) -> bool:
    return bool(torch.isinf(_values(tensor)).any())


def _absmax(tensor: torch.Tensor) -> float:
    values = _values(tensor)
    return float(values.abs().max()) if values.numel() else math.nan
