"""The numbers of the running step: loss, norms, learning rate, times, statistics."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flightrec.types import Site, Stat, StepRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from numpy.typing import NDArray

    from flightrec.recording.tape import Tape

LOSS = Site(module="", kind="loss")


class Meter:
    """Reads the tape's slab and adds what no tensor carries; one `record` per look."""

    def __init__(self, tape: Tape) -> None:
        """Read from `tape`."""
        self._tape = tape
        self.reset()

    def reset(self) -> None:
        """Begin a step."""
        self.lr: float | None = None
        self.updated = False
        self.scalars: dict[str, float] = {}
        self._times: dict[str, float] = {}
        self._marks: dict[str, float] = {}

    def log(self, scalars: Mapping[str, float]) -> None:
        """Keep values of the user's with the step."""
        self.scalars.update({name: float(value) for name, value in scalars.items()})

    def begin(self, part: str) -> None:
        """A part of the step begins: data, forward, backward, optimizer."""
        self._marks[part] = time.perf_counter()

    def end(self, part: str) -> None:
        """A part of the step is over; its seconds add up over the step."""
        started = self._marks.pop(part, None)
        if started is not None:
            self.spend(part, time.perf_counter() - started)

    def spend(self, part: str, seconds: float) -> None:
        """Add seconds to a part of the step."""
        self._times[part] = self._times.get(part, 0.0) + seconds

    def finished(self, record: StepRecord, seconds: float) -> StepRecord:
        """Return the last record of a step with what is known only at its end."""
        return replace(
            record, updated=self.updated, lr=self.lr, seconds=seconds, times=dict(self._times)
        )

    def record(self) -> StepRecord:
        """Return the numbers of the running step so far."""
        entry = self._tape.entry
        assert entry is not None
        sites, stats_SK = self._tape.slab.rows()
        value = _loss_value(self._tape.loss)
        if value is not None:
            sites, stats_SK = (*sites, LOSS), np.vstack([stats_SK, _loss_row(value)])
        return StepRecord(
            step=entry.step,
            loss=value,
            grad_norm=_gradient_norm(stats_SK[self._tape.gradient_rows]),
            lr=self.lr,
            updated=self.updated,
            times=dict(self._times),
            scalars=dict(self.scalars),
            sites=sites,
            stats_SK=stats_SK,
        )


def finite(stats_SK: NDArray[np.float64]) -> bool:
    """Do these rows count no NaN and no Inf?"""
    return not (stats_SK[:, Stat.NAN : Stat.INF + 1] > 0).any()


def _loss_value(loss: torch.Tensor | None) -> float | None:
    """Return the loss as a number; the mean of one that has several elements."""
    if loss is None or not loss.numel() or loss.device.type == "meta":
        return None
    return float(loss.float().mean() if loss.numel() > 1 else loss)


def _loss_row(value: float) -> Any:
    row_K = np.full(len(Stat), math.nan)
    row_K[Stat.MEAN] = value
    row_K[Stat.NUMEL] = 1
    row_K[Stat.NAN] = math.isnan(value)
    row_K[Stat.INF] = math.isinf(value)
    return row_K


def _gradient_norm(stats_SK: NDArray[np.float64]) -> float | None:
    """Return the L2 norm over the gradients in some rows, None where there are none."""
    if not len(stats_SK):
        return None
    return float(np.sqrt(np.square(stats_SK[:, Stat.L2]).sum()))
