"""What other libraries wrap around a module or its forward, seen through and put back simply."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from flightrec.tree.naming import class_name, mro

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WRAPPERS = {
    "torch._dynamo.eval_frame:OptimizedModule": ("_orig_mod", "torch.compile"),
    "torch.nn.parallel.distributed:DistributedDataParallel": ("module", "DistributedDataParallel"),
    "torch.nn.parallel.data_parallel:DataParallel": ("module", "DataParallel"),
}
"""Classes that only call the one module inside them: its name there, and what they are called."""

_DISPATCH = ("forward", "_old_forward", "_hf_hook")
_PRECISION = ("forward", "_original_forward")


LAZY_HOOKS = {"transformers.utils.output_capturing": "_output_capturing_hooks_installed"}
"""Modules whose hooks install themselves again, once the attribute that says they are is gone."""

REQUIRE_GRAD = (
    "PreTrainedModel.enable_input_require_grads.<locals>.make_inputs_require_grads",
    "prepare_model_for_kbit_training.<locals>.make_inputs_require_grad",
)
"""Hooks, local to functions of transformers and peft, that do what `require_grad` does."""


def require_grad(_module: nn.Module, _args: Any, output: Any) -> None:
    """Let gradients flow into the output of frozen embeddings, for activation checkpointing."""
    output.requires_grad_(requires_grad=True)


class PassThrough(nn.Module):
    """Stands for a wrapper: has the module inside under the same name, and calls it."""

    inside: str
    """Name of the child that does the work."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module inside, with its hooks."""
        return self._modules[self.inside](*args, **kwargs)  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        """Look for everything else on the module inside, as compiled modules do."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            inner = self.__dict__.get("_modules", {}).get(self.__dict__.get("inside"))
            if inner is None:
                raise
            return getattr(inner, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutocastForward:
    """A forward that runs under autocast and may give back float32, as accelerate's does."""

    device: str
    dtype: torch.dtype
    enabled: bool
    cache: bool
    float32: bool

    def bind(self, module: nn.Module) -> Callable[..., Any]:
        """Return the forward of the module's class, under these settings."""
        plain = MethodType(type(module).forward, module)

        @functools.wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(
                self.device, dtype=self.dtype, enabled=self.enabled, cache_enabled=self.cache
            ):
                output = plain(*args, **kwargs)
            return _to_float32(output) if self.float32 else output

        return forward


def wrapped(module: nn.Module) -> tuple[str, str] | None:
    """Return the child's name and the wrapper's, if a module is one of `WRAPPERS`."""
    for base in mro(type(module)):
        found = WRAPPERS.get(class_name(base))
        if found is not None:
            return found
    return None


def unpatched(
    module: nn.Module, state: dict[str, Any]
) -> tuple[dict[str, Any], AutocastForward | None, str | None]:
    """Take the patches of accelerate and of `module.compile()` off a copy of the attributes.

    Returns the attributes without them, an autocast forward to be put back, and what was left
    out, if that is worth saying.
    """
    note = None
    state = {key: value for key, value in state.items() if key not in LAZY_HOOKS.values()}
    if state.get("_compiled_call_impl") is not None:
        state = {**state, "_compiled_call_impl": None}
        note = "torch.compile: replay runs it without"
    if "_hf_hook" in state and "_old_forward" in state:
        hook = type(state["_hf_hook"]).__name__
        kept = {key: value for key, value in state.items() if key not in _DISPATCH}
        old = state["_old_forward"]
        if not _is_own_forward(module, old):
            kept["forward"] = old
        return kept, None, f"accelerate's {hook}: replay runs without it"
    if "_original_forward" in state and "forward" in state:
        found = _autocast_of(state["forward"])
        if found is not None and _is_own_forward(module, state["_original_forward"]):
            kept = {key: value for key, value in state.items() if key not in _PRECISION}
            return kept, found, note
    return state, None, note


def is_ours(hook: Any) -> bool:
    """Was a hook hung there by the recorder itself?"""
    hook = getattr(hook, "func", hook)
    hook = getattr(hook, "__func__", hook)
    home = getattr(hook, "__module__", None) or type(hook).__module__
    return str(home).partition(".")[0] == "flightrec"


def installs_itself(hook: Any) -> bool:
    """Is this a hook that its library hangs up again by itself, when it is needed?"""
    return getattr(hook, "__module__", None) in LAZY_HOOKS


def known_hook(hook: Any) -> Any:
    """Return a function that can be named and does the same as a well-known local one."""
    name = getattr(hook, "__qualname__", None)
    return require_grad if name in REQUIRE_GRAD else hook


def _is_own_forward(module: nn.Module, forward: Any) -> bool:
    return (
        isinstance(forward, MethodType)
        and forward.__self__ is module
        and forward.__func__ is type(module).forward
    )


def _autocast_of(forward: Any) -> AutocastForward | None:
    float32 = False
    for layer in _layers(forward):
        if type(layer).__name__ == "ConvertOutputsToFp32":
            float32 = True
        if isinstance(layer, torch.autocast):
            return AutocastForward(
                device=layer.device,
                dtype=layer.fast_dtype,
                enabled=layer._enabled,
                cache=layer._cache_enabled,
                float32=float32,
            )
    return None


def _layers(function: Any) -> Iterator[Any]:
    """Yield a function and what it wraps, one inside the other, with what they close over."""
    seen: set[int] = set()
    queue = [function]
    while queue:
        layer = queue.pop(0)
        if id(layer) in seen or len(seen) > 100:
            continue
        seen.add(id(layer))
        yield layer
        if isinstance(layer, MethodType):
            queue.append(layer.__func__)
        elif isinstance(layer, FunctionType):
            queue += [cell.cell_contents for cell in layer.__closure__ or () if _is_filled(cell)]
        elif type(layer).__name__ == "ConvertOutputsToFp32":
            queue.append(layer.model_forward)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading it is the test
    except ValueError:
        return False
    return True


def _to_float32(value: Any) -> Any:
    """Widen half precision tensors in nested lists, tuples and mappings, keeping their types."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_to_float32, value))
    if isinstance(value, list | tuple):
        return type(value)(map(_to_float32, value))
    if isinstance(value, dict):
        return type(value)({key: _to_float32(item) for key, item in value.items()})
    return value
