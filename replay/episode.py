"""The recorded segment, decoded: what was called with what, and which gradients came back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from flightrec.types import public_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

Arguments: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"
"""Positional and keyword arguments of one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOutput:
    """One tensor that a recorded call returned, as it was when the call ended."""

    leaf: str
    """Path inside the returned value, `""` for a bare tensor; see `tree.leaves`."""

    dtype: str
    """Name as in torch, without `torch.`."""

    shape: tuple[int, ...]
    hash: str
    """Content hash as in `tree.tensor_hash`; `""` where none was taken."""

    value: Callable[[], torch.Tensor] | None = None
    """The tensor itself where the budget allowed it, on the CPU."""

    changed: bool = False
    """Was it changed in place after the call, so that hash and value are not the call's?"""

    requires_grad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGradient:
    """The gradient that a parameter held at the end of the segment."""

    parameter: str
    """`root:qualified.name`, the first name where a parameter has several."""

    hash: str
    value: Callable[[], torch.Tensor] | None = None
    """The gradient itself where the budget allowed it, on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One entry from outside into a recorded root or one of its submodules."""

    index: int
    """Number of the call in its segment; `RecordedBackward.gradients` refers to it."""

    root: str
    """Key of the root, `""` where a single module was recorded."""

    module: str
    """Dotted name inside the root of the module that was entered, `""` for the root itself."""

    fresh: Callable[[], Arguments]
    """Decode the arguments anew, since a forward may change them in place.

    Tensors that required grad require it again and can be changed in place.
    """

    step: int = 0
    rng: Any = None
    """State of every generator right before the call, as `rng.Generators.restore` takes it."""

    buffers: Callable[[], Mapping[str, torch.Tensor]] = dict
    """`root:qualified.name` to value right before the call; equal objects mean equal values."""

    attributes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """`root:module` to plain attributes right before the call; the engine copies containers."""

    training: frozenset[str] | None = None
    """`root:module` of the modules in train mode; None where it was not recorded."""

    grad_enabled: bool = True
    inference_mode: bool = False
    autocast: tuple[Mapping[str, Any], ...] = ()
    """One entry per device type: device, dtype, enabled, cache."""

    outputs: tuple[RecordedOutput, ...] = ()
    raised: bool = False
    """Did the call end with an exception?"""

    @property
    def public_name(self) -> str:
        """Name of the entered module as a verdict gives it."""
        return public_name(self.root, self.module)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBackward:
    """One backward pass, by the gradients that entered through outputs of calls."""

    number: int
    after_call: int
    """How many calls of the segment had finished when it ran."""

    gradients: Callable[[], list[tuple[int, str, torch.Tensor]]]
    """Call index, leaf, total gradient that reached this output in this backward."""

    create_graph: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A stretch between two weight updates, ready to be run again by the engine."""

    step: int
    calls: tuple[RecordedCall, ...]
    first_step: int | None = None
    """Step in which the segment began; None means `step`."""

    backwards: tuple[RecordedBackward, ...] = ()
    rng: Any = None
    """State of every generator at the start of the step, for a `step_fn`."""

    batch: Callable[[], object] | None = None
    """Decode the batch given to `recorder.step` anew; None where there was none."""

    loss: torch.Tensor | None = None
    """The tensor given to `recorder.loss`, None where none was given."""

    loss_after_call: int | None = None
    """How many calls had finished when it was given."""

    gradients: tuple[RecordedGradient, ...] = ()
    gradients_unavailable: str | None = None
    """Why the gradients cannot follow from gradients at outputs, None where they can."""

    grads_present: bool = False
    """Did parameters hold zero gradients, not None, before the first backward?"""

    exception: Mapping[str, Any] | None = None
    """type, message and traceback of the exception that left the step."""

    optimizers: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
