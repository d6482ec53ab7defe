import os
import sys
import threading

import pytest

from flightrec.background import NICENESS, Background


def test_jobs_run_in_order_and_flush_waits_for_them():
    done = []
    background = Background(limit=8, failed=done.append)
    for number in range(5):
        assert background.submit(lambda number=number: done.append(number))
    assert background.flush(10)
    assert done == [0, 1, 2, 3, 4]
    assert background.close(10)


def test_a_full_queue_refuses_and_loses_nothing_it_took():
    gate = threading.Event()
    entered = threading.Event()
    done = []

    def wait():
        entered.set()
        gate.wait(10)
        done.append("first")

    background = Background(limit=1, failed=done.append)
    assert background.submit(wait)
    assert entered.wait(10)
    assert background.submit(lambda: done.append("second"))
    assert not background.submit(lambda: done.append("third"))
    gate.set()
    assert background.close(10)
    assert done == ["first", "second"]


def test_a_failing_job_is_told_and_the_next_one_runs():
    told, done = [], []
    background = Background(limit=8, failed=told.append)

    def fail():
        raise OSError("disk full")

    background.submit(fail)
    background.submit(lambda: done.append(1))
    assert background.close(10)
    assert [str(fault) for fault in told] == ["disk full"]
    assert done == [1]


def test_after_close_nothing_is_taken_and_no_thread_is_left():
    background = Background(limit=8, failed=print)
    background.submit(lambda: None)
    assert background.close(10)
    assert not background.submit(lambda: None)
    assert not [thread for thread in threading.enumerate() if thread.name == "flightrec"]


def test_closing_without_jobs_starts_no_thread():
    before = threading.active_count()
    assert Background(limit=1, failed=print).close(1)
    assert threading.active_count() == before


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_the_thread_stands_back_behind_the_run_and_the_run_keeps_its_priority():
    seen = []
    before = os.getpriority(os.PRIO_PROCESS, 0)
    background = Background(limit=1, failed=print)
    background.submit(
        lambda: seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    )
    background.close(10)
    assert seen == [NICENESS]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
