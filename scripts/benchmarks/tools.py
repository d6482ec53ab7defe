"""What is compared: nothing, the recorder, torch's anomaly mode, hooks as people write them."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, Protocol

import torch

from flightrec import FlightRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from benchmarks.workloads import Batch


class Watch(Protocol):
    """What a step of training calls while a tool is on."""

    def step(self, batch: Batch) -> contextlib.AbstractContextManager[Any]:
        """Surround one step."""

    def loss(self, loss: Tensor) -> None:
        """See the loss."""


class Unwatched:
    """Costs nothing and sees nothing."""

    def step(self, batch: Batch) -> contextlib.AbstractContextManager[Any]:
        """Surround one step with nothing."""
        del batch
        return contextlib.nullcontext()

    def loss(self, loss: Tensor) -> None:
        """Ignore the loss."""


@contextlib.contextmanager
def plain(model: nn.Module, optimizer: Optimizer) -> Iterator[Watch]:
    """Run without any tool."""
    del model, optimizer
    yield Unwatched()


@contextlib.contextmanager
def recorder(model: nn.Module, optimizer: Optimizer) -> Iterator[Watch]:
    """Run under the recorder with its default settings."""
    with (
        tempfile.TemporaryDirectory() as store,
        FlightRecorder(store, model=model, optimizer=optimizer) as watch,
    ):
        yield watch


@contextlib.contextmanager
def detect_anomaly(model: nn.Module, optimizer: Optimizer) -> Iterator[Watch]:
    """Run under `torch.autograd.detect_anomaly`."""
    del model, optimizer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        mode = torch.autograd.detect_anomaly()
    with mode:
        yield Unwatched()


@contextlib.contextmanager
def hooks(model: nn.Module, optimizer: Optimizer) -> Iterator[Watch]:
    """Run with mean, std and absmax of each layer's output, read at once."""
    del optimizer
    seen: dict[str, tuple[float, float, float]] = {}

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            del module, args
            values = output[0] if isinstance(output, tuple) else output
            values = values.detach()
            seen[name] = (values.mean().item(), values.std().item(), values.abs().max().item())

        return hook

    handles = [
        module.register_forward_hook(watch(name))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    try:
        yield Unwatched()
    finally:
        for handle in handles:
            handle.remove()


TOOLS = {"recorder": recorder, "hooks": hooks, "detect_anomaly": detect_anomaly}
"""By name; each is compared with `plain`."""
