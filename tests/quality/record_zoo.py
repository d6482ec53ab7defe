"""Record one model of the zoo four times: healthy, a NaN weight, a zeroed layer, an overflow.

`python -m tests.quality.record_zoo MODEL STORE` prints the incidents' ids as one line of JSON,
beside the hash of every gradient of the healthy run, taken here without the recorder's help.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from typing import TYPE_CHECKING

import torch

from flightrec import FlightRecorder
from tests.quality.zoo import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from tests.quality.zoo import Model

STEPS = 4
FAILING = 3
HUGE = 3e38
"""Nearly the largest float32."""


def hashes(model: nn.Module) -> dict[str, str]:
    """Return the hash of the bytes of each gradient there is."""
    return {
        name: hashlib.blake2b(
            parameter.grad.contiguous().numpy().tobytes(), digest_size=16
        ).hexdigest()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def train(
    entry: Model, store: str, plant: Callable[[nn.Module], None] | None
) -> tuple[str | None, dict[str, str]]:
    """Train for a few steps; with nothing planted, capture the last one by hand."""
    torch.manual_seed(3)
    model = entry.build().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    gradients: dict[str, str] = {}
    with FlightRecorder(store, model=model, optimizer=optimizer, run="train") as recorder:
        for number in range(STEPS):
            batch = entry.batch()
            if plant is not None and number == FAILING:
                plant(model)
            with recorder.step(batch):
                loss = entry.loss(model, batch)
                recorder.loss(loss)
                loss.backward()
                if plant is None and number == FAILING:
                    gradients = hashes(model)
                    recorder.capture("a healthy step")
                optimizer.step()
                optimizer.zero_grad()
    return next(iter(recorder.incidents), None), gradients


def infer(entry: Model, store: str, plant: Callable[[nn.Module], None]) -> str | None:
    """Use the model for a few steps, the last of them with a fault planted."""
    torch.manual_seed(4)
    model = entry.build().eval()
    with FlightRecorder(store, model=model, run="infer") as recorder:
        for number in range(STEPS):
            batch = entry.batch()
            if number == FAILING:
                plant(model)
            # Sampling words from logits that are not finite raises.
            with contextlib.suppress(RuntimeError), torch.no_grad(), recorder.step(batch):
                entry.infer(model, batch)
                if number == FAILING and not entry.noticed:
                    recorder.capture("something is odd")
    return next(iter(recorder.incidents), None)


@torch.no_grad()
def plant_nan(entry: Model, model: nn.Module) -> None:
    """Make one element of a weight NaN."""
    model.get_submodule(entry.nan).weight.view(-1)[1] = float("nan")


@torch.no_grad()
def plant_zeros(entry: Model, model: nn.Module) -> None:
    """Make all parameters of a module 0."""
    for parameter in model.get_submodule(entry.zero).parameters():
        parameter.zero_()


@torch.no_grad()
def plant_overflow(entry: Model, model: nn.Module) -> None:
    """Make a weight so large that sums with it overflow, though it is finite itself."""
    weight = model.get_submodule(entry.overflow).weight
    weight.copy_(weight.sign() * HUGE)


def main() -> None:
    """Record, and print what was recorded."""
    name, store = sys.argv[1:]
    entry = MODELS[name]
    torch.set_num_threads(1)
    healthy, gradients = train(entry, store, None)
    incidents = {
        "healthy": healthy,
        "nan": train(entry, store, lambda model: plant_nan(entry, model))[0],
        "zero": infer(entry, store, lambda model: plant_zeros(entry, model)),
        "overflow": infer(entry, store, lambda model: plant_overflow(entry, model)),
    }
    sys.stdout.write(json.dumps({"incidents": incidents, "gradients": gradients}) + "\n")


if __name__ == "__main__":
    main()
