"""Sees every optimizer step of the recorded parameters, right before and right after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.optim import optimizer as torch_optimizer

from flightrec.guard import guarded

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle


class UpdateListener(Protocol):
    """What the probe tells; each pair belongs to one update of the weights."""

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """The weights are about to change, unless the scaler decided to skip."""

    def update_ended(self) -> None:
        """The weights have changed."""


class OptimizerProbe:
    """The two process-wide optimizer hooks; a `step` that calls `super().step()` counts once."""

    def __init__(
        self, listener: UpdateListener, owned: Callable[[int], bool], faults: Counter[str]
    ) -> None:
        """Tell `listener` of optimizers that hold a parameter whose id `owned` knows."""
        self._listener = listener
        self._owned = owned
        self._faults = faults
        self._depth: dict[int, int] = {}

    def attach(self) -> list[RemovableHandle]:
        """Register the hooks; remove the returned handles to end."""
        return [
            torch_optimizer.register_optimizer_step_pre_hook(self._before),
            torch_optimizer.register_optimizer_step_post_hook(self._after),
        ]

    def reset(self) -> None:
        """Forget steps that never came back (an exception inside `step`)."""
        self._depth.clear()

    @property
    def inside(self) -> bool:
        """Is an update running now (a closure, for example)?"""
        return bool(self._depth)

    def _mine(self, optimizer: torch.optim.Optimizer) -> bool:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if self._owned(id(parameter)):
                    return True
        return False

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG002 - torch's signature
        with guarded("optimizer probe", self._faults):
            if not self._mine(optimizer):
                return
            depth = self._depth.get(id(optimizer), 0)
            self._depth[id(optimizer)] = depth + 1
            if depth == 0:
                self._listener.update_begins(optimizer)

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG002 - torch's signature
        with guarded("optimizer probe", self._faults):
            depth = self._depth.get(id(optimizer), 0)
            if depth > 1:
                self._depth[id(optimizer)] = depth - 1
            elif depth == 1:
                del self._depth[id(optimizer)]
                self._listener.update_ended()


def skipped_by_scaler(optimizer: torch.optim.Optimizer) -> bool:
    """Does a fused optimizer carry a scaler's verdict that this step must not happen?"""
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, torch.Tensor) and bool(found.detach().cpu().item() == 1)
