"""What each kind of plug-in must provide, and in which order its methods are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import IO, ClassVar

    import click

    from flightrec.types import Capture, Finding, StepRecord, Verdict, Window

Undo: TypeAlias = "Callable[[], None]"
"""Takes back what an installation did; calling it twice does no harm."""


@runtime_checkable
class Detector(Protocol):
    """A pure question about the recent steps: a frozen dataclass, numpy only.

    1. The class is called once, with its settings as keywords, when a recorder is made.
    2. `check` is called in the thread of the run: after each backward, before each step of an
       optimizer and at the end of each step; more than once for one step therefore, each time
       with more of its rows. It must not remember anything, and answers the same to the same.
    3. `check` is also called on stored incidents and whole catalogs, with other settings.

    Two class attributes are optional: `precedence` (an int, 50 where absent: which finding names
    the incident where several detectors speak; the lowest does) and `default` (False for a
    detector that only runs when it is named).
    """

    def check(self, window: Window) -> Iterator[Finding]:
        """Yield what is wrong with `window.steps[-1]`, earliest cause first."""
        ...


class Trigger(Protocol):
    """A reason to write an incident that no detector sees: `install` of a trigger's module.

    1. `install(fire)` is called in the thread of the run when a recorder is entered; where the
       machine cannot do it (a signal outside the main thread), it returns an undo that does
       nothing.
    2. `fire(reason)` may be called from any thread and from a signal handler; it only leaves a
       note, and the incident is made when the running step ends.
    3. The undo is called when the recorder is left, and puts back what was there before.
    """

    def __call__(self, fire: Callable[[str], None], /) -> Undo:
        """Start watching, and return how to stop."""
        ...


class Handle(Protocol):
    """Something attached, such as a hook."""

    def remove(self) -> None:
        """Detach it; calling this twice does no harm."""


class Probe(Protocol):
    """One kind of hook into a run; it tells a listener what it sees and judges nothing.

    1. The class is called with its listener when a recorder is entered; that hooks nothing.
    2. `attach` is called once. From then on the hooks run in the user's forward, backward and
       update: no host sync, no change of a value, a random state or a signature, and what the
       listener raises never reaches the run.
    3. `reset` is called at the start of each step that the user declares: an exception may have
       cut a call short.
    4. Every handle is removed when the recorder is left, also after an exception.
    """

    def attach(self) -> Sequence[Handle]:
        """Hook into the run, and return what removes the hooks."""
        ...

    def reset(self) -> None:
        """Forget what began and never ended."""


@runtime_checkable
class Sink(Protocol):
    """A live output of numbers while a run goes on.

    1. The class is called with its settings when a recorder is entered.
    2. `write` is called once after each step, in the thread of the run, oldest step first. What
       it raises is counted and does not stop the run.
    3. `close` is called once when the recorder is left, whatever `write` did before.
    """

    def write(self, record: StepRecord) -> None:
        """Take one step's numbers; it must not keep the record's arrays."""

    def close(self) -> None:
        """Flush and let go of what was opened; calling this twice does no harm."""


@runtime_checkable
class Store(Protocol):
    """Where incidents live; the URL scheme is the plug-in's name.

    1. The class is called with the URL or folder; that makes nothing on disk.
    2. `prepare` is called once by a writer, before its first `put`.
    3. `put` is called by the writer thread, one capture at a time; when it returns, the incident
       is complete and listed, and when it raises nothing half-written is visible.
    4. `ids`, `open`, `rows` and `delete` are called by readers, also in other processes, while a
       writer is at work.

    `flightrec.stores.Store` implements what follows from a few of these.
    """

    supports_writes: ClassVar[bool]
    supports_deletes: ClassVar[bool]

    def prepare(self) -> None:
        """Make ready for `put`; raises `StoreError` where the machine refuses."""

    def put(self, capture: Capture, key: bytes | None = None) -> Path:
        """Write one incident, signed with `key`; raises `StoreError` where it cannot."""
        ...

    def ids(self) -> Sequence[str]:
        """Return the ids there are, oldest first."""
        ...

    def open(self, id: str) -> Any:
        """Return an `Incident`; raises `IncidentNotFoundError` or `CorruptIncidentError`."""
        ...

    def delete(self, id: str) -> None:
        """Remove an incident and its rows; raises `IncidentNotFoundError`."""

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return one row per incident, oldest first."""
        ...


class Reporter(Protocol):
    """One output for a verdict: `render` of a reporter's module; `--format <name>`.

    1. `render` is called once per verdict, with a text stream that the caller closes. It prints
       no tensor values unless it was asked to, and escapes what came from the incident.
    """

    def __call__(self, verdict: Verdict, incident: Any, out: IO[str], /) -> None:
        """Write the verdict on an `Incident` to `out`."""
        ...


class Integration(Protocol):
    """A framework's callback that only calls the recorder.

    1. The module is imported only when its framework is installed or was asked for; it names
       the oldest version it works with in `MINIMUM`.
    2. `install(recorder)` is called once; the callbacks then call `step`, `loss` and `log`, and
       check each time that the recorder is still on.
    3. The undo is called when the recorder is left. A recorder that fails never stops training.
    """

    MINIMUM: str

    def install(self, recorder: Any, /) -> Undo:
        """Connect a `FlightRecorder` to the framework, and return how to disconnect it."""
        ...


class Check(Protocol):
    """One preflight check: `check` of its module, called once before a run."""

    def __call__(self, model: Any, /) -> Iterator[Finding]:
        """Yield what would fail in the run."""
        ...


class Command(Protocol):
    """One command of `flightrec`: `command` of its module, a `click.Command`.

    1. The module is imported when its command is called or the help of all is asked for.
    2. The callback parses, calls one library function and prints rows; errors of ours pass
       through, so that one place turns them into a line and an exit code.
    """

    command: click.Command
