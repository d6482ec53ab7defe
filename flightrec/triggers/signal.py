"""Captures now when the process gets SIGUSR1: `kill -USR1 PID`."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

from flightrec.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from flightrec.protocols import Undo

NAME = "SIGUSR1"


class _Listener:
    """Our handler, and what was there before it."""

    def __init__(self, number: int, fire: Callable[[str], None]) -> None:
        self.number = number
        self.fire = fire
        self.before = signal.getsignal(number)
        self.active = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.active:
            with guarded("trigger signal"):
                self.fire(NAME)
        if callable(self.before):
            self.before(number, frame)
        elif self.before == signal.SIG_DFL and not self.active:
            # somebody still passes the signal to us: let it do what it does by itself
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def stop(self) -> None:
        """Put the earlier handler back, unless somebody has installed a third since."""
        self.active = False
        in_main = threading.current_thread() is threading.main_thread()
        current: object = signal.getsignal(self.number)
        if in_main and current is self:
            signal.signal(self.number, self.before)


def install(fire: Callable[[str], None]) -> Undo:
    """Call `fire("SIGUSR1")` on that signal, then the handler that was there before.

    Does nothing where it cannot work: on Windows, outside the main thread, and where a handler
    that Python did not install could not be put back.
    """
    number = getattr(signal, NAME, None)
    in_main = threading.current_thread() is threading.main_thread()
    if number is None or not in_main or signal.getsignal(number) is None:
        return _nothing
    listener = _Listener(number, fire)
    signal.signal(number, listener)
    return listener.stop


def _nothing() -> None:
    """Undo nothing."""
