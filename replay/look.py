"""Measure what a run left behind, so that it can be compared without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flightrec.tree import leaves
from replay.meter import Meter
from replay.symptom import Look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.engine import Trace
    from replay.oplog import Flags, OpLog
    from replay.symptom import Key, Where


def look(trace: Trace, log: OpLog | None = None) -> Look:
    """Measure outputs, loss, gradients and buffers of a run; with its `log` inner outputs too."""
    meter = Meter()
    slots: list[tuple[Where, Key, int]] = []
    with torch.no_grad():
        for where, key, tensor in _left(trace):
            slots.append((where, key, meter.span(tensor).slot))
    meter.settle()
    values: dict[Where, dict[Key, Flags]] = {}
    for where, key, slot in slots:
        flags = meter.flags[slot]
        if flags is not None:
            values.setdefault(where, {})[key] = flags
    if log is not None:
        values["inner"] = inner(log)
    fault = trace.exception
    return Look(
        values=values, exception=None if fault is None else f"{fault.type}: {fault.message}"
    )


def _left(trace: Trace) -> Iterator[tuple[Where, Key, torch.Tensor]]:
    for position, outputs in enumerate(trace.outputs):
        for leaf, tensor in outputs:
            yield "output", (position, leaf), tensor
    if trace.loss is not None:
        yield "loss", (0, ""), trace.loss
    for name, tensor in trace.gradients.items():
        yield "gradient", (0, name), tensor
    for name, tensor in trace.buffers.items():
        yield "buffer", (0, name), tensor


def inner(log: OpLog) -> dict[Key, Flags]:
    """Return what inner modules returned in the forward pass, by call and `module:leaf`."""
    found: dict[Key, Flags] = {}
    for visit in log.visits:
        if visit.again:
            continue
        for leaf, span in visit.outputs:
            flags = log.flag(span)
            if flags is not None:
                found[visit.call, f"{visit.module}:{leaf}"] = flags
    return found


def classes_in(value: object) -> set[tuple[str, str]]:
    """Return (path, class) for the bad classes of each tensor in a batch, all zeros included."""
    found: set[tuple[str, str]] = set()
    with torch.no_grad():
        for path, tensor in leaves(value):
            meter = Meter()
            slot = meter.span(tensor).slot
            meter.settle()
            flags = meter.flags[slot]
            if flags is not None:
                found |= {(path, word) for word in flags.bad}
                if flags.zero():
                    found.add((path, "zero"))
    return found
