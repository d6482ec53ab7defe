"""Keeps the gradients that flow back into a call's outputs, and sees each backward end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from flightrec.guard import guarded

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable

    from torch.utils.hooks import RemovableHandle


class BackwardListener(Protocol):
    """What the probe tells: `backward_begins`, `gradient_arrived` many times, `backward_ended`."""

    def backward_begins(self, *, create_graph: bool) -> None:
        """The first gradient of a new backward reaches an output of a call."""

    def gradient_arrived(self, call: int, leaf: str, gradient: torch.Tensor) -> None:
        """The whole gradient of one output, same shape and dtype as that output."""

    def backward_ended(self) -> None:
        """The backward is over; `.grad` of every parameter is complete."""


class BackwardProbe:
    """Pre-hooks on the autograd nodes that made the outputs; they die with the graph.

    Nodes are used and not tensors, so that nothing hangs on the user's tensors and an output
    that is changed in place later still reports the gradient of what the call returned.
    """

    def __init__(self, listener: BackwardListener, faults: Counter[str]) -> None:
        """Tell `listener`; faults of ours are counted into `faults`."""
        self._listener = listener
        self._faults = faults
        self._task: int | None = None
        self._alive = True

    def attach(self) -> list[RemovableHandle]:
        """Nothing is registered before a call returns; `close` ends what was."""
        return []

    def reset(self) -> None:
        """Forget a backward that never ended (an exception inside it)."""
        self._task = None

    def close(self) -> None:
        """Make hooks that still sit on living graphs do nothing."""
        self._alive = False

    @property
    def inside(self) -> bool:
        """Is a backward through recorded outputs running now?"""
        return self._task is not None

    def watch(self, call: int, outputs: Iterable[tuple[str, torch.Tensor]]) -> int:
        """Follow the outputs (leaf, tensor) of one call; return how many can be followed."""
        nodes: dict[torch.autograd.graph.Node, list[tuple[int, str]]] = {}
        for leaf, tensor in outputs:
            if tensor.grad_fn is not None:
                nodes.setdefault(tensor.grad_fn, []).append((tensor.output_nr, leaf))
        for node, places in nodes.items():
            node.register_prehook(self._hook(call, places))
        return sum(len(places) for places in nodes.values())

    def _hook(
        self, call: int, places: list[tuple[int, str]]
    ) -> Callable[[tuple[torch.Tensor, ...]], None]:
        def arrived(gradients: tuple[torch.Tensor, ...]) -> None:
            if not self._alive:
                return
            with guarded("backward probe", self._faults):
                self._begin()
                for number, leaf in places:
                    gradient = gradients[number]
                    if gradient is not None:
                        self._listener.gradient_arrived(call, leaf, gradient)

        return arrived

    def _begin(self) -> None:
        task = torch._C._current_graph_task_id()
        if task == self._task:
            return
        self._task = task
        self._listener.backward_begins(create_graph=torch.is_grad_enabled())
        torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        self._task = None
        if self._alive:
            with guarded("backward probe", self._faults):
                self._listener.backward_ended()
