"""The live machine between the probes and the files: follows a step, judges it, drafts it."""

from __future__ import annotations

import functools
import math
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch

from flightrec.buffers.ring import Ring
from flightrec.probes.backward import BackwardProbe
from flightrec.probes.forward import ForwardProbe, Members
from flightrec.probes.optimizer import OptimizerProbe, skipped_by_scaler
from flightrec.probes.parameters import ParameterProbe
from flightrec.probes.state import StateProbe, walk
from flightrec.recording.desk import Desk
from flightrec.recording.dossier import Dossier
from flightrec.recording.judge import Judge
from flightrec.recording.meter import Meter
from flightrec.recording.outlets import Outlets
from flightrec.recording.tape import Tape
from flightrec.rng import Generators
from flightrec.types import Stat, public_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from flightrec.config import Settings
    from flightrec.protocols import Detector, Handle
    from flightrec.recording.filing import Filing
    from flightrec.recording.identity import Run
    from flightrec.types import Site

Method = TypeVar("Method", bound="Callable[..., Any]")


class StepFinder(Protocol):
    """Decides where steps begin and end when the user does not say."""

    def before_call(self, module: nn.Module) -> None:
        """A recorded module is about to be entered."""

    def after_call(self, error: BaseException | None) -> None:
        """The entry is over."""

    def after_update(self) -> None:
        """The weights have changed."""


def timed(method: Method) -> Method:
    """Count the time a method of ours takes into `self.cost`, in seconds."""

    @functools.wraps(method)
    def measured(self: Session, *args: Any, **kwargs: Any) -> Any:
        if self._timing:
            return method(self, *args, **kwargs)
        self._timing = True
        started = time.perf_counter()
        try:
            return method(self, *args, **kwargs)
        finally:
            self._timing = False
            self.cost += time.perf_counter() - started

    return measured  # type: ignore[return-value]


class Session:
    """What goes on between `start` and `stop`; the listener of all probes.

    `begin_step` ... `end_step` bracket a step. Findings are collected at the end of each
    backward and of the step; the incident is drafted at the latest moment at which the weights
    that failed are still there: right before the optimizer's step, else at the end of the step.
    """

    def __init__(
        self,
        roots: Mapping[str, nn.Module],
        optimizers: Mapping[str, Any],
        settings: Settings,
        run: Run,
        filing: Filing,
        *,
        detectors: Sequence[Detector],
        scaler: Any,
        step_fn: Callable[..., Any] | None,
    ) -> None:
        """Build everything around `roots`; nothing is hooked before `start`."""
        self.roots = roots
        self.settings = settings
        self.filing = filing
        self.dropped = filing.dropped
        self.cost = 0.0
        self._timing = False
        self.steps = 0
        self.seconds = 0.0
        self.state = StateProbe(roots)
        self.parameters = ParameterProbe(roots, public_name)
        self.generators = Generators(roots)
        self.ring = Ring(steps=settings.ring_steps, max_bytes=settings.ring_bytes)
        self.tape = Tape(
            roots,
            state=self.state,
            parameters=self.parameters,
            generators=self.generators,
            step_bytes=settings.ring_bytes,
            device_bytes=settings.device_bytes,
            reserve=self._reserve,
            dropped=self.dropped,
        )
        self.meter = Meter(self.tape)
        dossier = Dossier(
            roots,
            optimizers,
            settings,
            run,
            scaler=scaler,
            step_fn=step_fn,
            generators=self.generators,
            state=self.state,
            parameters=self.parameters,
            detectors=detectors,
        )
        self.desk = Desk(
            tape=self.tape,
            meter=self.meter,
            ring=self.ring,
            judge=Judge(detectors, self._bad_buffers(), self.dropped),
            parameters=self.parameters,
            dossier=dossier,
            filing=filing,
            dropped=self.dropped,
            trains=bool(optimizers),
        )
        self.forward = ForwardProbe(Members(roots), self, self.dropped)
        self.backward = BackwardProbe(self, self.dropped)
        self.updates = OptimizerProbe(self, self.parameters.owns, self.dropped)
        self.outlets = Outlets(settings.sinks, self.dropped)
        self._handles: list[Handle] = []
        self._updated_inside = False
        self._withheld: list[tuple[nn.Parameter, torch.Tensor]] = []
        self._finder: StepFinder | None = None

    def start(self) -> None:
        """Attach the probes."""
        for probe in (self.forward, self.backward, self.updates):
            self._handles.extend(probe.attach())
        self.outlets.open(self.fire)

    def stop(self) -> None:
        """Remove every hook; what was carried to a step that did not come is drafted as it is."""
        last = next(reversed(tuple(self.ring)), None)
        if self.desk.waiting and last is not None:
            self.tape.entry = last
            self.desk.begin_step()
            self.desk.draft(None)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.backward.close()
        self.outlets.close()
        self.tape.entry = None

    def _bad_buffers(self) -> frozenset[Site]:
        """Buffers that hold NaN or Inf before the run begins, such as -inf masks."""
        self.state.measure(self.tape.slab, public_name)
        self.tape.slab.read()
        sites, stats_SK = self.tape.slab.rows()
        self.tape.slab.clear()
        bad_S = stats_SK[:, Stat.NAN] + stats_SK[:, Stat.INF] > 0
        return frozenset(sites[row] for row in np.flatnonzero(bad_S))

    def _reserve(self, nbytes: int) -> None:
        """Make room in the ring before the running step copies."""
        dropped = self.ring.reserve(nbytes)
        if dropped:
            self.dropped["steps over ring_bytes"] += dropped

    def unseen(self) -> list[dict[str, str]]:
        """Note modules whose calls hooks cannot see, and return those notes."""
        for place, module in walk(self.roots):
            if getattr(module, "_compiled_call_impl", None) is not None:
                self.tape.not_captured[f"calls of {place.lstrip(':') or 'the model'}"] = (
                    "compiled in place by Module.compile(), where hooks see nothing; "
                    "use model = torch.compile(model) instead"
                )
        return [{"what": what, "why": why} for what, why in self.tape.not_captured.items()]

    def follow(self, finder: StepFinder) -> None:
        """Let `finder` begin and end steps from what the probes tell."""
        self._finder = finder

    # The step.

    @timed
    def begin_step(self, step: int, batch: object) -> None:
        """Open a step."""
        if self._finder is None:
            self._reset_probes()
        self.desk.begin_step()
        self._updated_inside = False
        self.meter.reset()
        data = self.tape.begin_step(step, batch)
        if data is not None:
            self.meter.spend("data", data)

    def _reset_probes(self) -> None:
        """Forget calls, backwards and updates that an exception cut short."""
        for probe in (self.forward, self.backward, self.updates):
            probe.reset()

    @timed
    def end_step(self, error: BaseException | None) -> None:
        """Judge what was not judged yet, draft what is pending, keep the step in the ring."""
        entry = self.tape.entry
        if entry is None:
            return
        if self.meter.updated:
            self.parameters.measure_share(self.tape.slab)
        record = self.desk.look(update=self.meter.updated)
        seconds = self.tape.end_step()
        if isinstance(error, Exception) or (self.desk.wanted and not self.desk.carry()):
            self.desk.draft(error)
        if error is not None:
            self._reset_probes()
        record = self.meter.finished(record, seconds)
        entry.record = record
        entry.bad = self.desk.end_step(record) or error is not None
        self.tape.entry = None
        self.steps += 1
        self.seconds += seconds
        if self.tape.segment.updated or not self.tape.segment.backwards:
            self.tape.release()
        self._reserve(entry.nbytes)
        self.ring.push(entry)
        self.outlets.write(record)

    def log(self, scalars: Mapping[str, float]) -> None:
        """Keep values of the user's with the step."""
        self.meter.log(scalars)

    @timed
    def set_loss(self, loss: torch.Tensor | float) -> None:
        """Keep the loss; a tensor of any shape stays on its device."""
        if not isinstance(loss, torch.Tensor):
            loss = torch.tensor(float(loss), dtype=torch.float64)
        self.tape.set_loss(loss)

    def arm(self, reason: str) -> str:
        """Ask for an incident of the running or the next step; return its id."""
        return self.desk.ask(reason)

    def fire(self, reason: str) -> None:
        """Ask for an incident from a signal handler or another thread; only leaves a note."""
        self.arm(reason)

    # What the probes tell.

    @timed
    def call_opened(
        self, root: str, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """A recorded module is entered."""
        if self._finder is not None:
            self._finder.before_call(module)
        if self.tape.entry is not None:
            if self.updates.inside and self.tape.segment.backwards:
                self.tape.updated()  # a closure: the weights move between its evaluations
            self.tape.open_call(root, name, args, kwargs)
            self.meter.begin("forward")

    @timed
    def call_closed(self, output: object, error: BaseException | None) -> None:
        """The entry is over."""
        if self.tape.entry is not None:
            self.meter.end("forward")
            self.tape.close_call(output, raised=error is not None, watch=self.backward.watch)
        if self._finder is not None:
            self._finder.after_call(error)

    @timed
    def backward_begins(self, *, create_graph: bool) -> None:
        """Gradients start to arrive at outputs."""
        if self.tape.entry is not None:
            self.meter.begin("backward")
            self.tape.begin_backward(create_graph=create_graph)

    @timed
    def gradient_arrived(self, call: int, leaf: str, gradient: torch.Tensor) -> None:
        """One output has its gradient."""
        if self.tape.entry is not None:
            self.tape.gradient(call, leaf, gradient)

    @timed
    def backward_ended(self) -> None:
        """Every gradient is looked at; findings keep a copy of them."""
        if self.tape.entry is None:
            return
        self.meter.end("backward")
        self.tape.end_backward()
        self.desk.look(update=self.updates.inside or self._updated_inside)
        self.desk.keep_gradients()
        if self.desk.pending and self.updates.inside:
            self.desk.draft(None)

    @timed
    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """The last moment with the weights that failed."""
        if self.tape.entry is None or skipped_by_scaler(optimizer):
            return
        self.desk.trains = True
        self.meter.lr = float(optimizer.param_groups[0].get("lr", math.nan))
        if torch._C._current_autograd_node() is not None:
            # an optimizer inside the backward: judged when the backward ends
            self._updated_inside = True
            self.parameters.measure_of(optimizer, self.tape.slab)
            return
        self.meter.begin("optimizer")
        if self.tape.segment.calls and not self.tape.backwards:
            self.tape.missed_backward()
        if self.desk.suspicious or self.tape.slab.pending:
            self.desk.look(update=True)
        if self.desk.wanted:
            made = self.desk.draft(None)
            if made is not None and self.settings.on_incident == "skip":
                self._withhold(optimizer)

    @timed
    def update_ended(self) -> None:
        """The weights have changed, or were kept from changing."""
        if self.tape.entry is None:
            return
        if self._withheld:
            for parameter, gradient in self._withheld:
                parameter.grad = gradient
            self._withheld = []
            return
        self.meter.end("optimizer")
        self.meter.updated = True
        self.tape.updated()
        if self._finder is not None:
            self._finder.after_update()

    def _withhold(self, optimizer: torch.optim.Optimizer) -> None:
        """Skip one update: optimizers leave parameters without gradient as they are."""
        self.dropped["optimizer steps skipped on incident"] += 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._withheld.append((parameter, parameter.grad))
                    parameter.grad = None
