"""Writes down what the probes see: steps, calls, backwards, segments; judges nothing."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from flightrec.buffers.ring import (
    BackwardRecord,
    CallRecord,
    OutputRecord,
    SegmentRecord,
    StepEntry,
)
from flightrec.buffers.slab import Slab
from flightrec.tree import Encoder, TensorTable, leaves
from flightrec.types import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from flightrec.probes.parameters import ParameterProbe
    from flightrec.probes.state import StateProbe
    from flightrec.rng import Generators


def public_name(root: str, name: str) -> str:
    """Name of a module for people: `key.name` where several models are recorded."""
    return f"{root}.{name}" if root and name else root or name


class Tape:
    """The step that is running now, and the segment it belongs to.

    Order of calls within a step: `begin_step`, then any number of `open_call`/`close_call`,
    `begin_backward`/`gradient`/`end_backward`, `set_loss`, `updated`; then `end_step`.
    """

    def __init__(
        self,
        roots: Mapping[str, nn.Module],
        *,
        state: StateProbe,
        parameters: ParameterProbe,
        generators: Generators,
        step_bytes: int,
        device_bytes: int,
    ) -> None:
        """Record `roots`; copy at most `step_bytes` of inputs and keep `device_bytes` of grads."""
        self._state = state
        self._parameters = parameters
        self._generators = generators
        self._step_bytes = step_bytes
        self._device_bytes = device_bytes
        self._modules = {
            id(module): f"{key}:{name}"
            for key, root in roots.items()
            for name, module in root.named_modules()
        }
        self.slab = Slab()
        self.segment = SegmentRecord(first_step=0)
        self.entry: StepEntry | None = None
        self.dropped: Counter[str] = Counter()
        self.not_captured: dict[str, str] = {}
        self.times: dict[str, float] = {}
        self.backwards = 0
        self._nth: Counter[tuple[str, str]] = Counter()
        self._call: CallRecord | None = None
        self._kept = 0
        self._started = 0.0
        self._last_end: float | None = None

    def begin_step(self, step: int, batch: object) -> None:
        """Open a step: random state and the batch, before any user code of the step runs."""
        table = TensorTable()
        self.entry = StepEntry(step=step, table=table, rng=self._generators.read())
        self.slab.clear()
        self._nth.clear()
        self._kept = 0
        self._call = None
        self.backwards = 0
        self._started = time.perf_counter()
        self.times = {}
        if self._last_end is not None:
            self.times["data"] = self._started - self._last_end
        if self.segment.updated or not self.segment.backwards or not self._gradients_left():
            self.segment = SegmentRecord(first_step=step)
        if batch is not None:
            self.entry.batch = self._encode(batch, "batch")

    def _gradients_left(self) -> bool:
        """Do gradients of earlier steps wait for an update (accumulation)?"""
        return self._parameters.any_gradient()

    def end_step(self) -> float:
        """Close the step; return its seconds."""
        self._last_end = time.perf_counter()
        return self._last_end - self._started

    def open_call(self, root: str, name: str, args: tuple[Any, ...], kwargs: Any) -> None:
        """Write down an entry before its forward runs."""
        entry = self.entry
        assert entry is not None
        if self.segment.updated:
            self.segment = SegmentRecord(first_step=entry.step)
        state = self._state.read()
        self._call = CallRecord(
            index=len(self.segment.calls),
            nth=self._nth[root, name],
            root=root,
            module=name,
            step=entry.step,
            args=self._encode(args, "args"),
            kwargs=self._encode(kwargs, "kwargs"),
            table=entry.table,
            rng=self._generators.read(),
            state=state,
            grad_enabled=torch.is_grad_enabled(),
            inference_mode=torch.is_inference_mode_enabled(),
            autocast=autocast_state(),
        )
        entry.state_bytes += state.nbytes
        self._nth[root, name] += 1
        self.segment.calls.append(self._call)
        entry.calls.append(self._call)

    def close_call(
        self, output: object, *, raised: bool, watch: Callable[[int, Any], int]
    ) -> CallRecord | None:
        """Write down what the entry returned; `watch(index, outputs)` follows its gradients."""
        call, self._call = self._call, None
        if call is None:
            return None
        if raised:
            call.raised = True
            return call
        name = public_name(call.root, call.module)
        found = [(leaf, tensor) for leaf, tensor in leaves(output)]
        for leaf, tensor in found:
            alias = tensor.detach()
            version = -1 if alias.is_inference() else alias._version
            call.outputs.append(OutputRecord(leaf, alias, version, tensor.requires_grad))
            self.slab.put_range(
                Site(module=name, kind="output", leaf=leaf, call=call.nth), tensor.detach()
            )
        watch(call.index, found)
        self._state.measure(self.slab, public_name)
        return call

    def set_loss(self, loss: torch.Tensor) -> None:
        """Write down the loss of the step; the last one given counts."""
        self.segment.loss = (loss.detach(), len(self.segment.calls))

    def begin_backward(self, *, create_graph: bool) -> None:
        """Write down that gradients start to arrive."""
        if not self.segment.backwards:
            self.segment.grads_present = self._parameters.any_gradient()
        if create_graph:
            self.segment.unavailable = (
                "a backward with create_graph=True (a gradient penalty) reaches parameters by a "
                "path outside the recorded calls"
            )
        self.segment.backwards.append(
            BackwardRecord(
                number=len(self.segment.backwards),
                after_call=len(self.segment.calls),
                create_graph=create_graph,
            )
        )

    def gradient(self, call: int, leaf: str, gradient: torch.Tensor) -> None:
        """Keep one gradient by reference, within the budget of the segment."""
        segment = self.segment
        if not segment.backwards or call >= len(segment.calls):
            segment.unavailable = "a backward went through calls of an earlier segment"
            return
        size = gradient.numel() * gradient.element_size()
        if segment.gradient_bytes + size > self._device_bytes:
            segment.unavailable = (
                f"gradients at the outputs exceed device_bytes={self._device_bytes}"
            )
            self.dropped["gradients at outputs over device_bytes"] += 1
            return
        segment.gradient_bytes += size
        segment.backwards[-1].gradients.append((call, leaf, gradient, gradient._version))

    def end_backward(self) -> None:
        """Look at every gradient."""
        self._parameters.measure_gradients(self.slab, self.backwards)
        self.backwards += 1

    def updated(self) -> None:
        """The weights have changed: what follows belongs to the next segment."""
        self.segment.updated = True

    def release(self) -> None:
        """Let go of outputs and gradients that only the newest segment needed."""
        for call in self.segment.calls:
            call.outputs.clear()
        for backward in self.segment.backwards:
            backward.gradients.clear()

    def _encode(self, value: object, name: str) -> Any:
        """Encode a nested value into the step's table and copy its tensors, within the budget."""
        entry = self.entry
        assert entry is not None
        size = sum(tensor.numel() * tensor.element_size() for _, tensor in leaves(value))
        encoder = Encoder(entry.table, modules=self._modules)
        node = encoder.encode(value, name=name)
        for missing in encoder.not_captured:
            self.not_captured.setdefault(missing["what"], missing["why"])
        if self._kept + size > self._step_bytes:
            entry.table.freeze(copy=False)
            self.dropped["inputs kept by reference: over ring_bytes"] += 1
        else:
            entry.table.freeze()
            self._kept += size
        return node


def autocast_state() -> tuple[dict[str, Any], ...]:
    """Return the autocast settings of the CPU and of the accelerator there is."""
    states = []
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            states.append(
                {
                    "device": device,
                    "dtype": str(torch.get_autocast_dtype(device)).removeprefix("torch."),
                    "enabled": True,
                    "cache": torch.is_autocast_cache_enabled(),
                }
            )
    return tuple(states)
