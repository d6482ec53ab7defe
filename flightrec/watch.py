"""Recording without a change inside the loop: steps are found, not declared."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any

from flightrec.recorder import FlightRecorder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import nn

    from flightrec.recording.session import Session


class Watcher(FlightRecorder):
    """A recorder whose steps follow the optimizer, or the calls where there is none."""

    def start(self) -> None:
        """Begin recording, and end it at the latest when Python exits."""
        super().start()
        if self._session is not None:
            self._session.follow(_Found(self, self._session))
            atexit.register(self.close)

    def close(self) -> None:
        """End recording; a step that is still open ends first."""
        session = self._session
        if session is not None and session.tape.entry is not None:
            self._end(None)
        atexit.unregister(self.close)
        super().close()


class _Found:
    """Decides from calls, backwards and updates where a step begins and ends."""

    def __init__(self, watcher: Watcher, session: Session) -> None:
        self._watcher = watcher
        self._session = session
        self._trains = bool(watcher._optimizers)

    def before_call(self, module: nn.Module) -> None:
        """Begin a step where none is open; end one whose gradients were thrown away."""
        session = self._session
        entry = session.tape.entry
        if entry is not None and session.tape.backwards and not session.parameters.any_gradient():
            self._watcher._end(None)
            entry = None
        if entry is None and (module.training or not self._trains):
            self._watcher._begin(None, None)

    def after_call(self, error: BaseException | None) -> None:
        """End the step with its call where nothing trains, or where the call raised."""
        if self._session.tape.entry is not None and (error is not None or not self._trains):
            self._watcher._end(error)

    def after_update(self) -> None:
        """End the step: the weights have changed."""
        if self._session.tape.entry is not None:
            self._watcher._end(None)


def watch(
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: object = None,
    *,
    store: str | os.PathLike[str],
    **options: Any,
) -> FlightRecorder:
    """Record `model` from now on, without a change inside the loop; end it with `.close()`.

    A step ends with the optimizer's step, or where a call finds every `.grad` None after a
    backward (a step that was skipped); without optimizer each outermost call is a step. Calls
    in eval mode between training steps get no step number. Takes the options of
    `FlightRecorder`, and raises what it raises.
    """
    watcher = Watcher(store, model=model, optimizer=optimizer, **options)
    watcher.start()
    return watcher
