"""The walk back from a symptom, and the search for one row, on values written by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replay.norm import Healthy, Judge
from replay.search import only_member, trace_back
from tests.replay.logs import GOOD, NAN, ZERO, Written


def slice_of(log, span, *, zeros=False):
    judge = Judge(log.log, Healthy([]), zeros=zeros)
    return trace_back(judge, [(span, len(log.log.ops))])


def test_walk_follows_bad_values_only():
    log = Written()
    log.op("log", [("x", GOOD)], [("a", NAN)])
    log.op("other", [("x", GOOD)], [("b", GOOD)])
    log.op("unrelated", [("x", GOOD)], [("c", NAN)])
    log.op("add", [("a", NAN), ("b", GOOD)], [("d", NAN)])
    found = slice_of(log, log.span("d", NAN))
    assert list(found.reads) == [0, 3]
    assert found.reads[0] == []
    assert [read.ops for read in found.reads[3]] == [(0,)]


def test_good_symptom_has_no_slice():
    log = Written()
    log.op("log", [("x", GOOD)], [("a", NAN)])
    found = slice_of(log, log.span("y", GOOD))
    assert found.starts == []
    assert found.reads == {}


def test_value_that_nobody_wrote_is_a_leaf():
    log = Written()
    log.op("mm", [("weight", NAN)], [("y", NAN)])
    (read,) = slice_of(log, log.span("y", NAN)).reads[0]
    assert (read.source, read.ops) == ("leaf", ())


def test_older_write_shows_through_a_partial_one():
    log = Written()
    log.op("first", [], [("x", NAN)])
    log.op("part", [], [log.span("x", GOOD, start=0, stop=4)])
    (read,) = slice_of(log, log.span("x", NAN)).starts
    assert read.ops == (0,)


def test_memory_that_nobody_wrote_is_told_apart():
    log = Written()
    log.op("empty", [], [log.span("x", None)], unwritten=True)
    log.log.flags[log.log.ops[0].writes[0].slot] = None
    (read,) = slice_of(log, log.span("x", NAN)).starts
    assert (read.source, read.ops) == ("memory", (0,))


def test_view_of_the_zero_part_is_the_producer():
    log = Written()
    log.op("cat", [], [("x", GOOD)])
    log.op("select", [("x", GOOD)], views=True)
    shown = log.span("x", ZERO, maker=1, start=4, stop=8)
    (read,) = slice_of(log, shown, zeros=True).starts
    assert (read.source, read.ops) == ("view", (1,))


def test_cycle_through_an_in_place_write_ends():
    log = Written()
    log.op("log", [("y", GOOD)], [("x", NAN)])
    log.op("add_", [("x", NAN)], [("x", NAN)])
    log.op("mul_", [("x", NAN)], [("x", NAN)])
    assert list(slice_of(log, log.span("x", NAN)).reads) == [0, 1, 2]


@given(st.integers(2, 200), st.data())
def test_single_row_is_found_in_logarithmic_time(count, data):
    guilty = data.draw(st.integers(0, count - 1))
    trials = []

    def cured(rows):
        trials.append(rows)
        return guilty in rows

    assert only_member(count, cured) == guilty
    assert len(trials) <= (count - 1).bit_length() + 2


@given(st.integers(2, 60), st.data())
def test_two_rows_are_no_answer(count, data):
    rows = st.integers(0, count - 1)
    guilty = data.draw(st.frozensets(rows, min_size=2, max_size=5))
    assert only_member(count, lambda exchanged: guilty <= exchanged) is None


@given(st.integers(2, 60))
def test_failure_that_any_exchange_cures_has_no_single_row(count):
    assert only_member(count, bool) is None


def test_one_row_alone_is_no_answer():
    assert only_member(1, lambda _: True) is None
