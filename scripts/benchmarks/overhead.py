"""Step time with a tool on, over step time with it off: paired, alternating, in one process.

A round takes one block of steps without a tool and one with each, in an order that rotates; the
model, its weights and its optimizer are the same objects throughout. Entering a tool and its
first steps are not timed. On the CPU the time is that of the whole process on all its threads,
so work moved to another thread still counts; on CUDA it is wall-clock time after a
synchronisation.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from benchmarks.pairs import Ratio, ratio
from benchmarks.tools import TOOLS, plain
from benchmarks.workloads import loss_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from benchmarks.tools import Watch
    from benchmarks.workloads import Batch, Workload

WARM_UP = 2
"""Steps after entering a tool that are not timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What one tool costs on one workload."""

    workload: str
    tool: str
    ratio: Ratio
    step_ms: float
    """Median time of a step without any tool, in milliseconds."""

    inside: float | None
    """Step time over step time less what passed inside our hooks, by the recorder's own clock."""

    goal: float | None
    """Most that it may cost; None for tools that are not ours."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """A network in training whose steps can be timed."""

    model: nn.Module
    optimizer: Optimizer
    batches: Sequence[Batch]
    device: str

    @classmethod
    def of(cls, workload: Workload, device: str) -> Bench:
        """Build a workload on a device."""
        torch.manual_seed(0)
        model = workload.model().to(device)
        batches = [
            (inputs.to(device), targets.to(device))
            for inputs, targets in (workload.batch() for _ in range(4))
        ]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        return cls(model=model, optimizer=optimizer, batches=batches, device=device)

    def clock(self) -> float:
        """Return seconds since some moment, after all that was asked for is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def train(self, watch: Watch, steps: int) -> None:
        """Take some steps."""
        for number in range(steps):
            batch = self.batches[number % len(self.batches)]
            with watch.step(batch):
                loss = loss_of(self.model, batch)
                watch.loss(loss)
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
                self.optimizer.step()
                self.optimizer.zero_grad()

    def block(self, tool: str, steps: int) -> tuple[float, float | None]:
        """Return the seconds of a step under a tool, the mean over a block, and `inside`."""
        with TOOLS.get(tool, plain)(self.model, self.optimizer) as watch:
            self.train(watch, WARM_UP)
            hooks_before, all_before = getattr(watch, "cost", (0.0, 0.0))
            started = self.clock()
            self.train(watch, steps)
            seconds = self.clock() - started
            hooks, total = getattr(watch, "cost", (0.0, 0.0))
        hooks, total = hooks - hooks_before, total - all_before
        return seconds / steps, total / (total - hooks) if total else None


def measure(
    workload: Workload, device: str, rounds: int, say: Callable[[str], None]
) -> list[Overhead]:
    """Time all tools on one workload; `say` is told what goes on."""
    bench = Bench.of(workload, device)
    names = ["plain", *TOOLS]
    times: dict[str, list[float]] = {name: [] for name in names}
    inside: dict[str, list[float]] = {}
    for number in range(rounds):
        say(f"{workload.name}: round {number + 1} of {rounds}")
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds, share = bench.block(name, workload.steps)
            times[name].append(seconds)
            if share is not None:
                inside.setdefault(name, []).append(share)
    step_ms = 1000 * statistics.median(times["plain"])
    return [
        Overhead(
            workload=workload.name,
            tool=tool,
            ratio=ratio(times[tool], times["plain"]),
            step_ms=step_ms,
            inside=statistics.median(inside[tool]) if tool in inside else None,
            goal=workload.goal if tool == "recorder" else None,
        )
        for tool in TOOLS
    ]
