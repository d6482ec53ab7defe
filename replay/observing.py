"""Run one episode under observers and tell whether it fails; counts every re-execution."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from replay.confirm import Tap
from replay.look import look
from replay.scan import Scan

if TYPE_CHECKING:
    from torch import nn

    from replay.engine import Edit, Engine, Observer, Trace
    from replay.episode import Arguments, Episode, RecordedCall
    from replay.oplog import OpLog
    from replay.symptom import Look, Symptom


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """One step, re-executed under a scan."""

    episode: Episode
    scan: Scan
    trace: Trace
    look: Look

    @property
    def log(self) -> OpLog:
        """Return its operators."""
        return self.scan.log


class Pair:
    """Two observers as one; only one of them may watch operators."""

    def __init__(self, first: Observer, second: Observer) -> None:
        """Take both."""
        self._both = (first, second)
        self._open = ExitStack()

    def __enter__(self) -> Pair:
        """Enter both."""
        for each in self._both:
            self._open.enter_context(each)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave both."""
        self._open.close()

    def call_begin(self, call: RecordedCall, module: nn.Module) -> None:
        """Tell both."""
        for each in self._both:
            each.call_begin(call, module)

    def call_end(self, call: RecordedCall, output: object) -> None:
        """Tell both."""
        for each in self._both:
            each.call_end(call, output)

    def backward_begin(self, number: int) -> None:
        """Tell both."""
        for each in self._both:
            each.backward_begin(number)

    def backward_end(self, number: int) -> None:
        """Tell both."""
        for each in self._both:
            each.backward_end(number)


class Bench:
    """Where experiments on one episode run."""

    def __init__(self, engine: Engine, episode: Episode) -> None:
        """Work on `episode` with `engine`."""
        self.engine = engine
        self.episode = episode
        self.runs = 0
        self.backward = False
        """Do failure and experiments need the backward pass?"""

    def run(
        self,
        observer: Observer | None = None,
        edit: Edit | None = None,
        episode: Episode | None = None,
    ) -> Trace:
        """Re-execute the episode, or another one in its place."""
        self.runs += 1
        return self.engine.run(episode or self.episode, observer, backward=self.backward, edit=edit)

    def scan(self, episode: Episode) -> Scanned:
        """Re-execute an episode operator by operator."""
        scan = Scan(self.engine.models)

        def learn(
            call: RecordedCall | None, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Arguments:
            if call is None:
                scan.given("batch", args[0], 0)
            else:
                scan.given("args", args, call.index)
                scan.given("kwargs", kwargs, call.index)
            return args, kwargs

        trace = self.run(scan, learn, episode)
        scan.returned(trace.loss)
        return Scanned(episode=episode, scan=scan, trace=trace, look=look(trace, scan.log))

    def judged_by(self, symptom: Symptom) -> Judged:
        """Return this bench with a way to tell whether a run still fails."""
        return Judged(self, symptom)


class Judged:
    """A bench that knows the symptom."""

    def __init__(self, bench: Bench, symptom: Symptom) -> None:
        """Judge runs of `bench` by `symptom`."""
        self._bench = bench
        self._symptom = symptom
        self.run = bench.run

    def is_healthy(
        self,
        observer: Observer | None = None,
        edit: Edit | None = None,
        episode: Episode | None = None,
    ) -> bool:
        """Re-execute and tell whether the symptom is gone, and no exception came instead."""
        if self._symptom.where != "inner":
            return not self._symptom.shows(look(self.run(observer, edit, episode)))
        models = self._bench.engine.models
        scan = Scan(models, observer if isinstance(observer, Tap) else None)
        plain = observer is None or isinstance(observer, Tap)
        both = scan if observer is None or plain else Pair(observer, scan)
        return not self._symptom.shows(look(self.run(both, edit, episode), scan.log))
