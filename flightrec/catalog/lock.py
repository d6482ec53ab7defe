"""A lock between processes that change the same catalog."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of `folder`; yields False, holding nothing, where another process has it.

    With `wait` it waits instead. The operating system frees the lock of a dead process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _take(descriptor, wait=wait)
    finally:
        os.close(descriptor)


if sys.platform == "win32":

    def _take(descriptor: int, *, wait: bool) -> bool:
        mode = msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK
        try:
            msvcrt.locking(descriptor, mode, 1)
        except OSError:
            if wait:
                raise
            return False
        return True

else:

    def _take(descriptor: int, *, wait: bool) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
