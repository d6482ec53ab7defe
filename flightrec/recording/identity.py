"""Who and what is recorded: the run, the roots, the optimizers, the step function."""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import sys
import traceback
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from flightrec.errors import UsageError
from flightrec.source import relative_path
from flightrec.tree import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TEXT_LIMIT = 2000
"""Characters of an exception's message that are kept."""

FRAME_LIMIT = 60
"""Frames of a traceback that are kept, the innermost ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process that trains or infers under a recorder."""

    name: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    pid: int = field(default_factory=os.getpid)
    argv: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))

    def as_json(self) -> dict[str, Any]:
        """Return what the manifest holds."""
        return {
            "id": self.id,
            "name": self.name,
            "started": self.started,
            "pid": self.pid,
            "argv": list(self.argv),
        }


def run_of(name: str | None) -> Run:
    """Name the run: as given, else after the script."""
    script = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "interactive"
    return Run(name=name or script or "interactive")


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and the number of ranks, (0, 1) when not distributed."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def roots_of(model: object) -> dict[str, nn.Module]:
    """Return key -> module; a single module has the key `""`.

    Raises `UsageError` where `model` is neither a module nor a dict of modules by name.
    """
    if isinstance(model, nn.Module):
        return {"": model}
    if isinstance(model, Mapping) and model:
        for key, module in model.items():
            if not isinstance(key, str) or not key or any(c in key for c in ".:#%/"):
                raise UsageError(f"model: a key must be a name without .:#%/, got {key!r}")
            if not isinstance(module, nn.Module):
                raise UsageError(f"model[{key!r}] must be a torch.nn.Module, got {module!r:.80}")
        return dict(model)
    raise UsageError(f"model must be a torch.nn.Module or a dict of them, got {model!r:.80}")


def optimizers_of(optimizer: object) -> dict[str, Any]:
    """Return name -> optimizer from one, a list or a dict.

    Raises `UsageError` for anything that has no `param_groups`.
    """
    if optimizer is None:
        return {}
    if isinstance(optimizer, Mapping):
        named = {str(name): value for name, value in optimizer.items()}
    elif isinstance(optimizer, (list, tuple)):
        named = {str(place): value for place, value in enumerate(optimizer)}
    else:
        named = {"": optimizer}
    for name, value in named.items():
        if not hasattr(value, "param_groups"):
            raise UsageError(
                f"optimizer{f'[{name}]' if name else ''} must be a torch.optim.Optimizer, "
                f"got {value!r:.80}"
            )
    return named


def store_of(store: object) -> str:
    """Return the folder or URL; raises `UsageError` for what is neither."""
    if not isinstance(store, (str, os.PathLike)) or not os.fspath(store):
        raise UsageError(f"store must be a folder or a URL, got {store!r:.80}")
    return str(os.fspath(store))


def scaler_of(scaler: object) -> Any:
    """Return the loss scaler; raises `UsageError` for what has no `get_scale`."""
    if scaler is not None and not callable(getattr(scaler, "get_scale", None)):
        raise UsageError(f"scaler must be a torch.amp.GradScaler, got {scaler!r:.80}")
    return scaler


def scaler_json(scaler: Any) -> dict[str, Any] | None:
    """Return class and present scale of the loss scaler."""
    if scaler is None:
        return None
    kind = type(scaler)
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "scale": number(scaler.get_scale())}


def optimizers_json(
    optimizers: Mapping[str, Any], parameters: Mapping[str, nn.Parameter]
) -> list[dict[str, Any]]:
    """Return name, class, learning rates and parameter names of each optimizer."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    return [
        {
            "name": name,
            "class": f"{type(optimizer).__module__}:{type(optimizer).__qualname__}",
            "lr": [
                number(float(group.get("lr", float("nan")))) for group in optimizer.param_groups
            ],
            "parameters": [
                [names[id(p)] for p in group["params"] if id(p) in names]
                for group in optimizer.param_groups
            ],
        }
        for name, optimizer in optimizers.items()
    ]


def step_fn_json(step_fn: Callable[..., Any] | None) -> dict[str, str] | None:
    """Return importable name and source of the user's step function.

    Raises `UsageError` where it is a lambda or defined inside a function, since replay could
    not find it again.
    """
    if step_fn is None:
        return None
    module = getattr(step_fn, "__module__", None)
    name = getattr(step_fn, "__qualname__", None)
    if not module or not name or "<" in name:
        raise UsageError(
            f"step_fn must be a function at the top level of a module, got {step_fn!r:.80}"
        )
    found: object = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    if getattr(found, "__func__", found) is not getattr(step_fn, "__func__", step_fn):
        raise UsageError(f"step_fn: {module}:{name} is not the function given; name it there")
    try:
        source = inspect.getsource(step_fn)
    except (OSError, TypeError):
        source = ""
    return {"name": f"{module}:{name}", "source": source}


def exception_json(error: BaseException) -> dict[str, Any]:
    """Return type, message and frames of an exception, bounded in size."""
    frames: Iterable[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    return {
        "type": f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."),
        "message": _message(error),
        "traceback": [
            {
                "file": relative_path(frame.filename),
                "line": frame.lineno or 0,
                "function": frame.name,
                "code": (
                    frame.line or linecache.getline(frame.filename, frame.lineno or 0)
                ).strip(),
            }
            for frame in list(frames)[-FRAME_LIMIT:]
        ],
    }


def _message(error: BaseException) -> str:
    try:
        return str(error)[:TEXT_LIMIT]
    except Exception as fault:
        return f"(its message cannot be formatted: {type(fault).__name__})"
