"""The flight recorder: a context manager around a loop, and what it says and does."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from flightrec.config import Settings
from flightrec.detectors import select
from flightrec.errors import IncidentError, UsageError
from flightrec.guard import guarded
from flightrec.recording.filing import Filing
from flightrec.recording.identity import (
    optimizers_of,
    roots_of,
    run_of,
    scaler_of,
    step_fn_json,
    store_of,
)
from flightrec.recording.session import Session
from flightrec.repository import collect_code
from flightrec.stores import open_store
from flightrec.structure import describe
from flightrec.tree import TensorTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    import torch
    from torch import nn

    from flightrec.protocols import Detector, Sink
    from flightrec.types import Json

log = logging.getLogger("flightrec")

_RECORDED: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""Modules that a recorder of this process is recording now."""


class FlightRecorder:
    """Record a training or inference loop, and write an incident when a step goes wrong.

    Use it as a context manager around the loop and `step` around each pass:

        with FlightRecorder("incidents", model=model, optimizer=optimizer) as recorder:
            for batch in loader:
                with recorder.step(batch):
                    ...

    After construction it never raises into the run (except `IncidentError` where
    `on_incident="raise"`), changes no value and no random state, and leaves no hook behind.
    The environment variable `FLIGHTREC_DISABLE=1` makes it do nothing at all.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        *,
        model: nn.Module | Mapping[str, nn.Module],
        optimizer: object = None,
        scaler: object = None,
        step_fn: Callable[..., torch.Tensor] | None = None,
        run: str | None = None,
        detectors: Sequence[str | Detector] | None = None,
        sinks: Sequence[str | Sink] = (),
        **options: object,
    ) -> None:
        """Check every option; nothing is hooked or written before the `with`.

        `store` is a folder or a URL (`memory://name`); `model` a module or a dict of modules by
        name; `optimizer` one, a list or a dict; `step_fn(model, batch) -> loss` a top-level
        function that lets replay re-execute the loss too; `options` are the fields of
        `flightrec.config.Settings`. Raises `UsageError`, which is a `ValueError`, with the
        option's name and value.
        """
        self._settings = Settings.of(run=run, detectors=detectors, sinks=sinks, **options)
        self._roots = roots_of(model)
        self._optimizers = optimizers_of(optimizer)
        self._scaler = scaler_of(scaler)
        step_fn_json(step_fn)  # refuses what replay could not find again
        self._step_fn = step_fn
        self._detectors = select(detectors)
        self._store = open_store(store_of(store))
        self._enabled = os.environ.get("FLIGHTREC_DISABLE") != "1"
        self._paused = False
        self._next = 0
        self._mine: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._session: Session | None = None
        self._filing: Filing | None = None
        if self._enabled:
            self._run = run_of(run)
            self._late: dict[str, Json] = {}

    def __enter__(self) -> FlightRecorder:
        """Attach the hooks and say, in one line, what is recorded and what cannot be rebuilt."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove every hook, finish what is being written, and say what was done."""
        self.close()

    def start(self) -> None:
        """Begin recording; `with` does it. Raises `UsageError` on a model recorded already."""
        if not self._enabled or self._session is not None:
            return
        for name, root in self._roots.items():
            if any(module in _RECORDED for module in root.modules()):
                raise UsageError(
                    f"model{f'[{name}]' if name else ''} ({type(root).__name__}) is already being "
                    "recorded by another FlightRecorder; close that one first"
                )
        filing = Filing(
            self._store, limit=self._settings.max_incidents, late=lambda: self._collected()
        )
        session = Session(
            self._roots,
            self._optimizers,
            self._settings,
            self._run,
            filing,
            detectors=self._detectors,
            scaler=self._scaler,
            step_fn=self._step_fn,
        )
        self._environment = threading.Thread(
            target=self._collect, name="flightrec-code", daemon=True
        )
        self._environment.start()
        self._began = time.perf_counter()
        session.start()
        for root in self._roots.values():
            _RECORDED.update(root.modules())
            self._mine.update(root.modules())
        self._filing, self._session = filing, session
        with guarded("start", session.dropped):
            self._announce()

    def close(self) -> None:
        """End recording; `with` does it. Waits for incidents that are still being written."""
        session, filing = self._session, self._filing
        if session is None or filing is None:
            return
        self._session = None
        session.stop()
        for module in list(self._mine):
            _RECORDED.discard(module)
        self._mine.clear()
        done = filing.close()
        with guarded("close", session.dropped):
            self._sum_up(session, filing, done=done)

    def step(self, batch: object = None, *, step: int | None = None) -> _Step:
        """Return the context of one step.

        `batch` is copied as it is now, before the step can change it. `step` sets the number of
        this step (a resumed run); the next ones count on from it. Raises `UsageError` outside
        of the recorder's own `with`.
        """
        if self._session is None and self._enabled:
            raise UsageError("recorder.step is used inside `with FlightRecorder(...) as recorder:`")
        return _Step(self, batch, step)

    def loss(self, loss: torch.Tensor | float) -> None:
        """Tell the loss of the running step; a tensor of any shape and device, or a number."""
        session = self._session
        if session is not None and session.tape.entry is not None:
            with guarded("loss", session.dropped):
                session.set_loss(loss)

    def log(self, **scalars: float) -> None:
        """Keep further numbers with the running step."""
        session = self._session
        if session is not None and session.tape.entry is not None:
            with guarded("log", session.dropped):
                session.log(scalars)

    def capture(self, reason: str) -> str:
        """Ask for an incident of the running step, else of the next; return its id.

        It is made right before the optimizer's next step, or when the step ends. After an
        update the weights of this step are gone, so the next segment is captured, and a note in
        the log says so. Returns `""` while the recorder is off.
        """
        session = self._session
        if session is None:
            return ""
        if session.tape.entry is None or session.tape.segment.updated:
            log.info("capture(%r): the weights have changed since; taking the next step", reason)
        return session.arm(str(reason))

    def pause(self) -> None:
        """Record nothing from the next step on."""
        self._paused = True

    def resume(self) -> None:
        """Record again from the next step on."""
        self._paused = False

    @property
    def incidents(self) -> list[str]:
        """Ids of the incidents of this run so far, oldest first, waiting ones included."""
        return list(self._filing.incidents) if self._filing is not None else []

    @property
    def cost(self) -> tuple[float, float]:
        """Seconds spent in our hooks on the thread of the run, and seconds of all steps."""
        session = self._session or self._ended
        return (session.cost, session.seconds) if session is not None else (0.0, 0.0)

    _ended: Session | None = None

    # The step.

    def _begin(self, batch: object, number: int | None) -> bool:
        session = self._session
        if session is None or self._paused:
            return False
        if session.tape.entry is not None:
            session.dropped["a step inside a step"] += 1
            return False
        if type(number) is int and number >= 0:
            self._next = number
        elif number is not None:
            session.dropped["step= that is no whole number from 0"] += 1
        with guarded("step begin", session.dropped):
            session.begin_step(self._next, batch)
        self._next += 1
        return True

    def _end(self, error: BaseException | None) -> None:
        session = self._session
        if session is None:
            return
        with guarded("step end", session.dropped):
            session.end_step(error)
        session.tape.entry = None
        if session.desk.made and error is None:
            made, session.desk.made = session.desk.made, []
            self._react(made)

    def _react(self, made: list[str]) -> None:
        """Do what `on_incident` asks for; the incident is on disk before it is told."""
        wish = self._settings.on_incident
        assert self._filing is not None
        if wish in ("continue", "skip"):
            return
        self._filing.flush()
        if wish == "raise":
            raise IncidentError(
                f"incident {made[-1]}: flightrec bisect {made[-1]} --store {self._filing.store.url}"
            )
        if wish == "breakpoint":
            breakpoint()
        elif callable(wish):
            for incident in made:
                try:
                    wish(self._filing.store.open(incident))
                except Exception:
                    log.exception("on_incident failed for incident %s", incident)

    # What is said.

    def _announce(self) -> None:
        description = describe(self._roots, TensorTable(copy=False))
        modules = sum(1 for root in self._roots.values() for _ in root.modules())
        assert self._session is not None
        parameters = sum(p.numel() for p in self._session.parameters.named.values())
        names = ", ".join(type(root).__name__ for root in self._roots.values())
        missing = [*description.not_captured, *self._session.unseen()]
        more = [f"; not captured: {entry['what']} ({entry['why']})" for entry in missing]
        more += [f"; note: {note}" for note in self._settings.not_yet()]
        log.log(
            logging.WARNING if more else logging.INFO,
            "recording %s (%d modules, %d parameters) into %s%s",
            names,
            modules,
            parameters,
            self._store.url,
            "".join(more),
        )

    def _sum_up(self, session: Session, filing: Filing, *, done: bool) -> None:
        dropped = filing.dropped
        wall = time.perf_counter() - self._began
        self._ended = session
        log.info(
            "recorded %d step%s, %d incident%s; recording took %.2f s, %.2f ms a step, "
            "%.1f%% of the run%s%s",
            session.steps,
            "" if session.steps == 1 else "s",
            filing.written,
            "" if filing.written == 1 else "s",
            session.cost,
            1000 * session.cost / max(session.steps, 1),
            100 * session.cost / wall,
            "; not kept: " + ", ".join(f"{why} x{n}" for why, n in dropped.items())
            if dropped
            else "",
            "" if done else "; some incidents were still being written",
        )

    def _collect(self) -> None:
        """Find the commit and diff, off the thread of the run."""
        with guarded("environment"):
            self._late["code"] = (
                collect_code(diff_bytes=self._settings.diff_bytes) if self._settings.code else None
            )

    def _collected(self) -> dict[str, Any]:
        """Return the manifest entries that were found in the background."""
        self._environment.join()
        return {"code": self._late.get("code")}


class _Step:
    """One pass through `with recorder.step(...)`."""

    __slots__ = ("_batch", "_number", "_open", "_recorder")

    def __init__(self, recorder: FlightRecorder, batch: object, number: int | None) -> None:
        self._recorder = recorder
        self._batch = batch
        self._number = number
        self._open = False

    def __enter__(self) -> None:
        self._open = self._recorder._begin(self._batch, self._number)
        self._batch = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open:
            self._recorder._end(error)
