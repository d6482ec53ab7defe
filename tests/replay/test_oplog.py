"""Flags, writers and sites, without torch."""

from __future__ import annotations

import math

import pytest

from replay.oplog import Flags, Site, SiteKey, Span, Writers
from tests.replay.logs import GOOD, MINUS, NAN, PLUS, ZERO, Written, size


@pytest.mark.parametrize(
    ("flags", "bad"),
    [(GOOD, set()), (ZERO, set()), (NAN, {"nan"}), (PLUS, {"+inf"}), (MINUS, {"-inf"})],
)
def test_flags_name_what_is_bad(flags, bad):
    assert flags.bad == bad


def test_zero_takes_two_elements_and_a_tolerance():
    assert ZERO.zero()
    assert not GOOD.zero()
    assert size(1e-6).zero(1e-5)
    assert not size(1e-6).zero()
    assert not Flags(False, False, False, 0.0, 1).zero()
    assert not Flags(True, False, False, math.nan, 4).zero(1.0)


def test_walk_ends_at_a_write_that_covers_everything():
    log = Written()
    log.op("first", [], [("x", NAN)])
    log.op("whole", [], [("x", GOOD)])
    part = log.span("x", NAN, start=4, stop=8)
    log.op("part", [], [part])
    log.op("elsewhere", [], [log.span("x", NAN, start=12, stop=16)])
    writers = Writers(log.log)
    read = log.span("x", start=0, stop=8)
    assert [index for index, _ in writers.of(read, 4)] == [2, 1]
    assert [index for index, _ in writers.of(read, 2)] == [1]
    assert [index for index, _ in writers.of(read, 0)] == []


def test_of_another_storage_nothing_is_known():
    assert Writers(Written().log).of(Span(99, 0, 4, 0), 5) == []


def test_sites_count_the_turns_of_one_place():
    log = Written()
    log.op("relu", place=("a.py", 3))
    log.op("relu", place=("a.py", 3))
    log.op("relu", place=("a.py", 4))
    keys = [SiteKey("m", "aten.relu.default", "forward", ("a.py", line), "") for line in (3, 3, 4)]
    turns = (0, 1, 0)
    assert log.log.sites() == [Site(key, turn) for key, turn in zip(keys, turns, strict=True)]


def test_backward_site_names_the_forward_operator():
    log = Written()
    log.op("sqrt")
    op = log.op("div", stage="backward", forward=0, node="SqrtBackward0")
    assert log.log.site_key(op).forward == "aten.sqrt.default"
    op.forward = None
    assert log.log.site_key(op).forward == "SqrtBackward0"
