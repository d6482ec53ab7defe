"""From an incident to something that runs: models with their weights, episodes, the step_fn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from flightrec.errors import CannotRebuildError, FlightrecError, UsageError
from flightrec.factory import load_factory
from flightrec.needs import needs_of
from flightrec.structure import rebuild
from replay.decoding import SegmentDecoder, Tensors
from replay.weights import RecordedState

if TYPE_CHECKING:
    from flightrec.incident.reader import Incident
    from flightrec.trust import Trust
    from replay.episode import Episode

Model: TypeAlias = "str | nn.Module | Mapping[str, nn.Module] | Callable[[], Any] | None"
"""What may stand for the recorded model: see `replayer.load`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An incident that can be run."""

    models: dict[str, nn.Module]
    """By key of the root; they hold the recorded weights and are on `device`."""

    episode: Episode
    controls: tuple[Episode, ...]
    """Healthy earlier steps, oldest first, with the inputs they had then."""

    step_fn: Callable[..., torch.Tensor] | None
    device: torch.device
    refresh: Callable[[str], torch.Tensor]
    """Gives the recorded value of a parameter by its `root:name`."""

    notes: tuple[str, ...] = ()
    """What differs from the recorded run."""

    changed: tuple[str, ...] = ()
    """Classes and functions whose text differs from the recorded one."""


def prepare(
    incident: Incident,
    trust: Trust,
    *,
    model: Model = None,
    device: torch.device,
) -> Prepared:
    """Rebuild the models of `incident`, or load its weights into `model`, and decode its steps.

    Raises `UsageError` for a factory that makes no model, `UntrustedNameError` with all names
    that are needed, `CodeMissingError`, and `CannotRebuildError` where weights are missing or
    do not fit.
    """
    manifest = incident.manifest
    segments = (manifest["segment"], *manifest["controls"])
    tensors = Tensors(incident, device)
    node = manifest["model"]["roots"]
    state = RecordedState(node, tensors)
    given = None if model is None else models_of(model)
    notes = [_gap(gap) for gap in manifest["not_captured"]]
    wanted = {need for segment in segments for need in needs_of(_values(segment))}
    if given is None:
        if node is None:
            raise CannotRebuildError(
                "this incident holds no weights (weights='none'); give the model: "
                "--model package.module:factory"
            )
        trust.check(needs_of(node) | wanted)
        models = rebuild(node, tensors.loader(), trust, place=tensors.place)
    else:
        trust.check(wanted)
        models = {key: root.to(device) for key, root in given.items()}
        notes += state.load_into(models)
    notes += [f"the code of {name} differs from the recorded one" for name in trust.changed]
    decoder = SegmentDecoder(tensors, trust, models)
    _check_calls(segments[0], models)
    step_fn, problem = _step_fn(manifest["step_fn"], trust)
    return Prepared(
        models=models,
        episode=decoder.episode(segments[0], optimizers=tuple(manifest["optimizers"])),
        controls=tuple(decoder.episode(segment) for segment in segments[1:]),
        step_fn=step_fn,
        device=device,
        refresh=state.fresh,
        notes=tuple(notes + problem),
        changed=tuple(trust.changed),
    )


def device_here(device: torch.device | str) -> torch.device:
    """Return the device if this machine has it; raises `UsageError` with those there are."""
    try:
        place = torch.device(device)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(count))])
        raise UsageError(f"no device {str(device)!r} here; there is {there}") from fault
    if place.type == "meta":
        raise UsageError("tensors on the device 'meta' have no values to replay")
    return place


def models_of(model: Model) -> dict[str, nn.Module]:
    """Return root key to module of what a user gives; a name is imported, a factory called.

    Names are looked for below the current folder first, and may start with a file:
    `path/to/file.py:factory`. Raises `UsageError` for a name of another form and for what makes
    no module, `CodeMissingError` where it cannot be imported.
    """
    made: Any = load_factory(model) if isinstance(model, str) else model
    if not isinstance(made, (nn.Module, Mapping)) and callable(made):
        made = made()
    if isinstance(made, nn.Module):
        return {"": made}
    if isinstance(made, Mapping) and all(isinstance(each, nn.Module) for each in made.values()):
        return {str(key): each for key, each in made.items()}
    raise UsageError(f"--model must give a module or a dict of modules, got {type(made).__name__}")


def _values(segment: Mapping[str, Any]) -> list[Any]:
    """Return the nodes of a segment that are decoded, which may name classes."""
    calls = segment["calls"]
    return [
        segment["batch"],
        *(call[part] for call in calls for part in ("args", "kwargs")),
        *(call["state"]["attributes"] for call in calls),
    ]


def _check_calls(segment: Mapping[str, Any], models: Mapping[str, nn.Module]) -> None:
    """Raise `CannotRebuildError` where a call enters a module that the models do not have."""
    names = {
        f"{root}:{name}"
        for root, model in models.items()
        for name, _ in model.named_modules(remove_duplicate=False)
    }
    for call in segment["calls"]:
        key = f"{call['root']}:{call['module']}"
        if key not in names:
            raise CannotRebuildError(
                f"the recorded step enters {key!r}, which the model does not have; "
                f"its roots are {', '.join(map(repr, models))}"
            )


def _step_fn(
    entry: Mapping[str, Any] | None, trust: Trust
) -> tuple[Callable[..., torch.Tensor] | None, list[str]]:
    """Import the recorded step function; where that fails, replay goes on without it."""
    if entry is None:
        return None, []
    module, _, qualname = entry["name"].partition(":")
    try:
        return trust.resolve_function(module, qualname), []
    except FlightrecError as fault:
        return None, [f"step_fn is not used: {fault}"]


def _gap(gap: Mapping[str, str]) -> str:
    return f"not captured: {gap['what']}: {gap['why']}"
