"""SIGUSR1 asks for an incident and leaves other handlers as they were."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from flightrec.triggers.signal import install

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1 here")


@pytest.fixture
def heard():
    """What an earlier handler of the user heard."""
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    yield calls
    signal.signal(signal.SIGUSR1, before)


def kick():
    os.kill(os.getpid(), signal.SIGUSR1)


def test_fires_and_passes_on(heard):
    fired = []
    undo = install(fired.append)
    kick()
    undo()
    kick()
    assert fired == ["SIGUSR1"]
    assert heard == [signal.SIGUSR1] * 2


def test_handler_installed_later_is_left_alone(heard):
    fired, theirs = [], []
    undo = install(fired.append)
    ours = signal.getsignal(signal.SIGUSR1)

    def later(number, frame):
        theirs.append(number)
        ours(number, frame)

    signal.signal(signal.SIGUSR1, later)
    undo()
    kick()
    assert signal.getsignal(signal.SIGUSR1) is later
    assert (fired, len(theirs), len(heard)) == ([], 1, 1)


def test_outside_the_main_thread_nothing_is_installed(heard):
    before = signal.getsignal(signal.SIGUSR1)
    undos = []
    thread = threading.Thread(target=lambda: undos.append(install(print)))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGUSR1) is before
    undos[0]()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_after_the_undo_the_signal_ends_the_process_as_before():
    program = (
        "import os, signal\n"
        "from flightrec.triggers.signal import install\n"
        "first, second = install(print), install(print)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "first(); second()\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "print('still here')\n"
    )
    words = [sys.executable, "-u", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "SIGUSR1\nSIGUSR1\n"
    assert done.returncode == -signal.SIGUSR1
