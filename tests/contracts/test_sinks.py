"""Every sink takes steps of every kind, and closes more than once."""

import math

import pytest

from flightrec import protocols
from flightrec.registry import Registry
from flightrec.types import StepRecord
from tests.detectors.windows import bad_output, gradient, lost, record

SINKS = Registry("sinks").names()
STEPS = (
    StepRecord(step=0),
    record(1, gradient(), lost(1.0), loss=1.0, norm=2.0),
    record(2, bad_output(nan=1, inf=2), lost(math.nan), loss=math.nan, norm=math.inf),
)


@pytest.fixture(params=SINKS)
def sink(request, tmp_path):
    """A sink that writes below a folder of its own."""
    made = Registry("sinks").load(request.param)(tmp_path / "out")
    yield made
    made.close()


def test_there_is_one():
    assert "jsonl" in SINKS


def test_is_a_sink(sink):
    assert isinstance(sink, protocols.Sink)


def test_takes_any_step_and_changes_none(sink):
    before = [(step, step.stats_SK.copy()) for step in STEPS]
    for step in STEPS:
        assert sink.write(step) is None
    for step, stats in before:
        assert step.stats_SK.tobytes() == stats.tobytes()


def test_closes_twice(sink):
    sink.write(STEPS[0])
    sink.close()
    sink.close()
