"""Run one case twice, plain and recorded, and print what happened as one line of JSON.

`python record_case.py CASE STORE`, with the folder of the cases on the path: to the recorder a
case is a stranger's own module.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys

import torch

from flightrec import FlightRecorder


class Unrecorded:
    """Stands where the recorder stands, and does nothing."""

    incidents = ()

    def step(self, batch):
        return contextlib.nullcontext()

    def loss(self, loss):
        pass


def one_step(case, model, optimizer, batch, recorder):
    """Take one step of the loop that the truth refers to, and return the loss."""
    if optimizer is None:
        with torch.no_grad():
            loss = case.step(model, batch)
        recorder.loss(loss)
        return loss
    optimizer.zero_grad()
    loss = case.step(model, batch)
    recorder.loss(loss)
    loss.backward()
    optimizer.step()
    return loss


def run(case, open_recorder):
    """Run a whole case; return the losses as hexadecimal, the error, and the incidents."""
    model = case.build()
    optimizer = case.optimizer(model)
    losses, error = [], None
    with open_recorder(model, optimizer) as recorder:
        try:
            for batch in case.batches():
                with recorder.step(batch):
                    loss = one_step(case, model, optimizer, batch, recorder)
                losses.append(float(loss.detach()).hex())
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    return {"losses": losses, "error": error, "incidents": list(recorder.incidents)}


def main():
    """Print the two runs side by side."""
    name, store = sys.argv[1:]
    case = importlib.import_module(name)
    plain = run(case, lambda model, optimizer: contextlib.nullcontext(Unrecorded()))
    recorded = run(
        case, lambda model, optimizer: FlightRecorder(store, model=model, optimizer=optimizer)
    )
    sys.stdout.write(json.dumps({"plain": plain, "recorded": recorded}) + "\n")


if __name__ == "__main__":
    main()
