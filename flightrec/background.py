"""A bounded queue and one thread that writes while training goes on."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("flightrec")

NICENESS = 10
"""How far this thread, and the threads it starts, stand back behind the run on Linux."""


class Background:
    """Runs jobs in order on one thread that is made when first needed and after a fork."""

    def __init__(self, *, limit: int, failed: Callable[[Exception], None]) -> None:
        """Hold at most `limit` waiting jobs; `failed` hears of each job that raised."""
        self._limit = limit
        self._failed = failed
        self._jobs: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue a job; return False, without waiting, where the queue is full or closed."""
        if os.getpid() != self._pid:
            self._after_fork()
        with self._changed:
            if self._closed or len(self._jobs) >= self._limit:
                return False
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flightrec", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return True

    def flush(self, timeout: float) -> bool:
        """Wait until every queued job is done, at most `timeout` seconds; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, timeout)

    def close(self, timeout: float) -> bool:
        """Finish the queued jobs and end the thread; return whether it ended in time."""
        done = self.flush(timeout)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout if done else 0)
        return done

    def _after_fork(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._jobs.clear()
        self._busy = False
        self._thread = None

    def _run(self) -> None:
        _yield_to_training()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._jobs) or self._closed)
                if not self._jobs:
                    return
                job = self._jobs.popleft()
                self._busy = True
            try:
                job()
            except Exception as fault:
                log.debug("background job failed", exc_info=True)
                self._failed(fault)
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()


def _yield_to_training() -> None:
    """Lower the priority of the calling thread; elsewhere than on Linux threads have none."""
    if sys.platform == "linux":
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        except OSError as refused:
            log.debug("background thread keeps its priority: %s", refused)
