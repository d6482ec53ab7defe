"""Train one network with the recorder on: `python -m demo_digits.train NAME`."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from demo_digits.data import bucketed_batches, random_batches
from demo_digits.models import ColumnReader, CropNet, TwoStreams
from flightrec import FlightRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What one training is made of."""

    model: Callable[[], nn.Module]
    batches: Callable[[], Iterator[tuple[tuple[Any, ...], Tensor]]]
    rate: float
    """Learning rate of Adam."""

    seed: int
    """Decides the first weights, and what is drawn inside the model."""


TRAININGS = {
    "columns": Training(
        model=ColumnReader, batches=lambda: bucketed_batches(7), rate=0.003, seed=7
    ),
    "crops": Training(model=CropNet, batches=lambda: random_batches(STEPS, 7), rate=0.003, seed=7),
    "streams": Training(
        model=TwoStreams, batches=lambda: random_batches(STEPS, 3), rate=0.005, seed=3
    ),
}


def train(name: str, store: str, console: Console) -> list[str]:
    """Train the network called `name`, print its loss, return the ids of its incidents.

    Training goes on after an incident, until the next line is printed.
    """
    training = TRAININGS[name]
    torch.manual_seed(training.seed)
    model = training.model()
    shares = [p for name, p in model.named_parameters() if name.endswith("share")]
    others = [p for name, p in model.named_parameters() if not name.endswith("share")]
    groups = [{"params": others}] + [{"params": shares, "lr": 0.02}] * bool(shares)
    optimizer = torch.optim.Adam(groups, lr=training.rate)
    with FlightRecorder(store, model=model, optimizer=optimizer, run=name) as recorder:
        for number, batch in enumerate(training.batches()):
            with recorder.step(batch):
                inputs, labels = batch
                logits = model(*inputs)
                loss = cross_entropy(logits, labels)
                recorder.loss(loss)
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
                optimizer.step()
                optimizer.zero_grad()
            if isinstance(model, TwoStreams):
                model.blend.project()
            if number % 20 == 0:
                right = (logits.argmax(1) == labels).float().mean()
                console.print(f"step {number:4d}   loss {loss:7.4f}   right {right:4.0%}")
                if recorder.incidents:
                    break
    return list(recorder.incidents)


def main() -> None:
    """Train the network that the command line names, into the store of the environment."""
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stdout)
    torch.set_num_threads(1)
    store = os.environ.get("FLIGHTREC_STORE", "demo-incidents")
    train(sys.argv[1], store, Console(highlight=False))


if __name__ == "__main__":
    main()
