"""Writes down what the probes see: steps, calls, backwards, segments; judges nothing."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from flightrec.buffers.ring import (
    BackwardRecord,
    CallRecord,
    Encoded,
    OutputRecord,
    SegmentRecord,
    StepEntry,
)
from flightrec.buffers.slab import Slab
from flightrec.describing import ReplayableEncoder
from flightrec.tree import TensorTable, leaves
from flightrec.tree.leaves import MAX_ITEMS
from flightrec.types import Site, public_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from flightrec.probes.parameters import ParameterProbe
    from flightrec.probes.state import StateProbe
    from flightrec.rng import Generators


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
        reserve: Callable[[int], None],
        dropped: Counter[str],
    ) -> None:
        """Record `roots`; copy at most `step_bytes` of inputs and keep `device_bytes` of grads.

        `reserve(nbytes)` is told how much the running step is about to hold.
        """
        self._reserve = reserve
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
        self._dropped = dropped
        self.not_captured: dict[str, str] = {}
        self.backwards = 0
        self.gradient_versions: list[int] = []
        self.gradient_rows = slice(0, 0)
        """Rows of the slab that the last backward filled."""

        self.loss: torch.Tensor | None = None
        self._nth: Counter[tuple[str, str]] = Counter()
        self._call: CallRecord | None = None
        self._serial = 0
        self._started = 0.0
        self._last_end: float | None = None

    def begin_step(self, step: int, batch: object) -> float | None:
        """Open a step: random state and the batch, before any user code of the step runs.

        Returns the seconds since the step before ended, None at the first.
        """
        self.entry = StepEntry(
            step=step,
            copies=TensorTable(),
            rng=self._generators.read(),
        )
        self.entry.state_bytes = self.entry.rng.nbytes
        self.slab.clear()
        self._nth.clear()
        self._call = None
        self.backwards = 0
        self.gradient_rows = slice(0, 0)
        self._started = time.perf_counter()
        self.loss = None
        if self.segment.updated or not self.segment.backwards or not self._gradients_left():
            self._new_segment(step)
        if batch is not None:
            self.entry.batch = self._encode(batch, "batch")
        return None if self._last_end is None else self._started - self._last_end

    def _gradients_left(self) -> bool:
        """Do gradients of earlier steps wait for an update (accumulation)?"""
        return self._parameters.any_gradient()

    def elapsed(self) -> float:
        """Seconds since the running step began."""
        return time.perf_counter() - self._started

    def end_step(self) -> float:
        """Close the step; return its seconds."""
        self._last_end = time.perf_counter()
        return self._last_end - self._started

    def open_call(self, root: str, name: str, args: tuple[Any, ...], kwargs: Any) -> None:
        """Write down an entry before its forward runs."""
        entry = self.entry
        assert entry is not None
        if self.segment.updated:
            self._new_segment(entry.step)
        state = self._state.read()
        self._call = CallRecord(
            index=len(self.segment.calls),
            serial=self._serial,
            nth=self._nth[root, name],
            root=root,
            module=name,
            step=entry.step,
            args=self._encode(args, "args"),
            kwargs=self._encode(kwargs, "kwargs"),
            rng=self._generators.read(),
            state=state,
            grad_enabled=torch.is_grad_enabled(),
            inference_mode=torch.is_inference_mode_enabled(),
            autocast=autocast_state(),
        )
        self._serial += 1
        entry.state_bytes += state.nbytes + self._call.rng.nbytes
        self._nth[root, name] += 1
        self.segment.calls.append(self._call)
        entry.calls.append(self._call)

    def close_call(
        self, output: object, *, raised: bool, watch: Callable[[int, Any], int]
    ) -> CallRecord | None:
        """Write down what the entry returned; `watch(serial, outputs)` follows its gradients."""
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
        watch(call.serial, found)
        self._state.measure(self.slab, public_name)
        return call

    def _new_segment(self, step: int) -> None:
        self.release()
        self.segment = SegmentRecord(first_step=step)

    def set_loss(self, loss: torch.Tensor) -> None:
        """Write down the loss of the step; the last one given counts."""
        self.loss = loss.detach()
        self.segment.loss = (self.loss, len(self.segment.calls))

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

    def gradient(self, serial: int, leaf: str, gradient: torch.Tensor) -> None:
        """Keep one gradient by reference, within the budget of the segment."""
        segment = self.segment
        first = segment.calls[0].serial if segment.calls else self._serial
        call = serial - first
        if not segment.backwards or not 0 <= call < len(segment.calls):
            segment.unavailable = "a backward went through calls of an earlier segment"
            return
        size = gradient.numel() * gradient.element_size()
        if segment.gradient_bytes + size > self._device_bytes:
            segment.unavailable = (
                f"gradients at the outputs exceed device_bytes={self._device_bytes}"
            )
            self._dropped["gradients at outputs over device_bytes"] += 1
            return
        segment.gradient_bytes += size
        segment.backwards[-1].gradients.append((call, leaf, gradient, gradient._version))

    def end_backward(self) -> None:
        """Look at every gradient."""
        first = self.slab.count
        self.gradient_versions = self._parameters.measure_gradients(self.slab, self.backwards)
        self.gradient_rows = slice(first, self.slab.count)
        self.backwards += 1

    def missed_backward(self) -> None:
        """Look at gradients that came without passing an output of a recorded call."""
        if not self.segment.backwards and self._parameters.any_gradient():
            self.segment.unavailable = (
                "no gradient passed the outputs of the recorded calls: an output was changed in "
                "place, or the loss was computed around them"
            )
        self.end_backward()

    def updated(self) -> None:
        """The weights have changed: what follows belongs to the next segment."""
        self.segment.updated = True

    def release(self) -> None:
        """Let go of outputs and gradients that only the newest segment needed."""
        for call in self.segment.calls:
            call.outputs.clear()
        for backward in self.segment.backwards:
            backward.gradients.clear()

    def _encode(self, value: object, name: str) -> Encoded:
        """Encode a nested value into the step's table and copy its tensors, within the budget."""
        entry = self.entry
        assert entry is not None
        size = sum(tensor.numel() * tensor.element_size() for _, tensor in leaves(value))
        table = entry.copies
        held = entry.nbytes + size
        if held <= self._step_bytes:
            self._reserve(held)
        else:
            table = TensorTable(copy=False)
            self._dropped["inputs kept by reference: over ring_bytes"] += 1
        encoder = ReplayableEncoder(table, modules=self._modules, max_items=MAX_ITEMS)
        node = encoder.encode(value, name=name)
        table.freeze()
        for missing in encoder.not_captured:
            self.not_captured.setdefault(missing["what"], missing["why"])
        return Encoded(node, table)


def autocast_state() -> tuple[dict[str, Any], ...]:
    """Return the autocast settings of the CPU and of the accelerator there is."""
    return tuple(
        {
            "device": device,
            "dtype": str(torch.get_autocast_dtype(device)).removeprefix("torch."),
            "enabled": True,
            "cache": torch.is_autocast_cache_enabled(),
        }
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    )
