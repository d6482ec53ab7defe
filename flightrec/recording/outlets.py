"""The sinks and triggers of one run: opened, fed, and taken down together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightrec.guard import guarded
from flightrec.registry import Registry

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from flightrec.protocols import Sink, Undo
    from flightrec.types import StepRecord


class Outlets:
    """Live outputs and reasons to capture; a failing one is counted and never stops the run."""

    def __init__(self, sinks: Sequence[str | Sink], faults: Counter[str]) -> None:
        """Resolve `sinks`: `name`, `name:argument` or objects; raises `UnknownPluginError`."""
        self._faults = faults
        self._wanted = [_resolved(sink) if isinstance(sink, str) else sink for sink in sinks]
        self._sinks: list[Sink] = []
        self._undo: list[Undo] = []

    def open(self, fire: Callable[[str], None]) -> None:
        """Open every sink and install every trigger; `fire(reason)` asks for an incident."""
        for wanted in self._wanted:
            with guarded("sink", self._faults):
                self._sinks.append(wanted() if callable(wanted) else wanted)
        triggers = Registry("triggers")
        for name in triggers:
            with guarded(f"trigger {name}", self._faults):
                self._undo.append(triggers.load(name)(fire))

    def write(self, record: StepRecord) -> None:
        """Hand one finished step to every sink."""
        for sink in self._sinks:
            with guarded(f"sink {type(sink).__name__}", self._faults):
                sink.write(record)

    def close(self) -> None:
        """Close the sinks and take back the triggers."""
        for sink in self._sinks:
            with guarded(f"sink {type(sink).__name__}", self._faults):
                sink.close()
        for undo in self._undo:
            with guarded("trigger", self._faults):
                undo()
        self._sinks.clear()
        self._undo.clear()


def _resolved(text: str) -> Callable[[], Sink]:
    """Find the sink that `name` or `name:argument` means."""
    name, colon, argument = text.partition(":")
    made = Registry("sinks").load(name)
    return (lambda: made(argument)) if colon else made
