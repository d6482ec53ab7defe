"""Every trigger gives back what it took, and survives a `fire` that raises."""

import os
import signal

import pytest

from flightrec import guard
from flightrec.registry import Registry

TRIGGERS = Registry("triggers").names()
PULL = {"signal": lambda: os.kill(os.getpid(), signal.SIGUSR1)}
"""How a test makes each trigger fire."""


@pytest.fixture(params=TRIGGERS)
def trigger(request):
    """The trigger, and how to make it fire."""
    if request.param not in PULL:
        pytest.fail(f"say in PULL how a test makes the trigger {request.param!r} fire")
    return Registry("triggers").load(request.param), PULL[request.param]


def handlers():
    """Every handler that Python knows of."""
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def test_there_is_one():
    assert "signal" in TRIGGERS


def test_fires_once_per_pull_with_a_reason(trigger):
    install, pull = trigger
    reasons = []
    undo = install(reasons.append)
    try:
        pull()
        assert len(reasons) == 1
        assert reasons[0].strip()
        pull()
        assert len(reasons) == 2
    finally:
        undo()


def test_undo_restores_and_may_be_called_twice(trigger):
    install, _ = trigger
    before = handlers()
    undo = install(lambda reason: None)
    undo()
    undo()
    assert handlers() == before


def test_a_fire_that_raises_is_ours_to_count(trigger, monkeypatch):
    install, pull = trigger
    monkeypatch.delenv("FLIGHTREC_STRICT", raising=False)
    before = guard.FAULTS.total()

    def fire(reason):
        raise ValueError(reason)

    undo = install(fire)
    try:
        pull()
    finally:
        undo()
    assert guard.FAULTS.total() == before + 1
