"""Recorded statistics as what is known of healthy steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flightrec.types import Site, Stat
from replay.episode import RecordedCall
from replay.history import contradicts, remembered
from replay.symptom import Look
from tests.replay.logs import GOOD, NAN, ZERO, size

OUTPUT = Site(module="net.head", kind="output", leaf="[0]", call=1)
BUFFER = Site(module="net.norm", kind="buffer", leaf="running_mean")


def row(**stats):
    values = np.full(len(Stat), math.nan)
    for name, value in stats.items():
        values[Stat[name]] = value
    return values


def test_statistics_get_the_keys_of_a_replay():
    fine = row(NAN=0, INF=0, MIN=-2, MAX=1, ABSMAX=2, NUMEL=6)
    bad = row(NAN=3, INF=0, NUMEL=6)
    stats = np.stack([np.stack([fine, fine]), np.stack([bad, bad])])
    steps = [{"step": 7, "updated": True}, {"step": 8, "updated": False}]
    (found,) = remembered([OUTPUT, BUFFER], stats, steps)
    assert (found.step, found.moved) == (7, True)
    calls = [
        RecordedCall(index=n, root="net", module="head", fresh=lambda: ((), {})) for n in range(2)
    ]
    look = found.look(calls, ["net", "other"])
    assert look.get("output") == {(1, "[0]"): size(2.0)._replace(numel=6)}
    assert look.get("inner").keys() == {(1, "net.head:[0]")}
    assert look.get("buffer") == {(0, "net:norm.running_mean"): size(2.0)._replace(numel=6)}


def test_step_before_which_nothing_was_updated_is_known_not_to_have_moved():
    stats = np.full((3, 0, len(Stat)), math.nan)
    steps = [{"step": n, "updated": n == 0} for n in range(3)]
    assert [each.moved for each in remembered([], stats, steps)] == [True, False]


def test_site_that_was_not_measured_is_left_out():
    stats = np.full((2, 1, len(Stat)), math.nan)
    (found,) = remembered([OUTPUT], stats, [{"step": 0}, {"step": 1}])
    assert found.values == {}


def looks(recorded, replayed):
    return [
        Look(values={"output": {(0, ""): each}} if each else {}) for each in (recorded, replayed)
    ]


@pytest.mark.parametrize(
    ("recorded", "replayed", "moved", "answer"),
    [
        (GOOD, GOOD, False, False),
        (GOOD, size(1.02), False, True),
        (GOOD, size(1.02), True, False),
        (GOOD, NAN, True, True),
        (GOOD, ZERO, True, True),
        (ZERO, ZERO, True, False),
        (NAN, NAN, False, False),
        (GOOD, None, False, True),
        (GOOD, None, True, False),
        (None, NAN, True, False),
    ],
)
def test_control_contradicts_what_was_recorded_of_it(recorded, replayed, moved, answer):
    assert contradicts(*looks(recorded, replayed), moved=moved) is answer


def test_exception_contradicts():
    assert contradicts(Look(), Look(exception="ValueError: no"), moved=True)
