from collections import Counter

import numpy as np

from flightrec.recording.judge import Facts, Judge, fingerprint
from flightrec.types import Finding, Site, Stat, StepRecord

OUTPUT = Site(module="", kind="output")
LOSS = Site(module="", kind="loss")


def record(step, *, nan=0, inf=0, site=OUTPUT):
    stats = np.full((1, len(Stat)), np.nan)
    stats[0, [Stat.NAN, Stat.INF]] = nan, inf
    return StepRecord(step=step, sites=(site,), stats_SK=stats)


class Says:
    """A detector that finds what it is told to."""

    def __init__(self, kind="nan", site=OUTPUT, level="capture", when=lambda r: True):
        self.kind, self.site, self.level, self.when = kind, site, level, when

    def check(self, window):
        newest = window.steps[-1]
        if self.when(newest):
            yield Finding(
                detector="says", site=self.site, step=newest.step, value=1.0, limit=0.0,
                kind=self.kind, level=self.level,
            )  # fmt: skip


def judge(*detectors, known_bad=frozenset()):
    return Judge(detectors, known_bad, Counter())


def test_facts_are_found_out_once_and_only_when_asked():
    asked = []
    facts = Facts({"a": lambda: asked.append("a") or True, "b": lambda: asked.append("b") or False})
    assert facts.get("a", False)
    assert facts["a"]
    assert asked == ["a"]
    assert list(facts) == ["a", "b"]
    assert facts.get("c", False) is False


def test_the_same_finding_is_taken_once_per_step():
    one = judge(Says())
    one.begin_step()
    assert one.look((), record(0), {})
    assert not one.look((), record(0), {})
    one.begin_step()
    assert one.look((), record(1), {})


def test_a_note_is_kept_and_captures_nothing():
    one = judge(Says(level="note"))
    one.begin_step()
    assert not one.look((), record(0), {})
    assert len(one.findings) == 1


def test_a_detector_that_fails_is_counted_and_the_others_are_asked(monkeypatch):
    monkeypatch.delenv("FLIGHTREC_STRICT", raising=False)

    class Broken:
        def check(self, window):
            raise ZeroDivisionError

    faults = Counter()
    one = Judge([Broken(), Says()], frozenset(), faults)
    one.begin_step()
    assert one.look((), record(0), {})
    assert faults == {"fault in detector Broken: ZeroDivisionError": 1}


def steps(one, *records):
    """Run records through a judge as a desk does; return what was written, by step."""
    written = []
    for newest in records:
        one.begin_step()
        if one.look((), newest, {}):
            kind, finding = one.verdict(newest)
            if one.repeats(kind, finding.site) is None:
                one.report(kind, finding.site, f"i{newest.step}")
                written.append(newest.step)
        one.end_step(newest)
    return written


def test_what_stays_bad_follows_from_the_first_and_the_same_place_is_told_once():
    bad = judge(Says(when=lambda r: r.stats_SK[0, Stat.NAN] > 0))
    assert steps(bad, record(0), record(1, nan=3), record(2, nan=3), record(3)) == [1]
    assert steps(bad, record(4, nan=1)) == []  # same fingerprint


def test_another_place_after_a_healthy_step_is_another_incident():
    one = judge(
        Says(when=lambda r: r.step == 1),
        Says(site=LOSS, when=lambda r: r.step == 3),
    )
    assert steps(one, record(0), record(1), record(2), record(3)) == [1, 3]


def test_a_mask_that_stays_infinite_keeps_nothing_open():
    one = judge(
        Says(kind="inf", when=lambda r: r.step in (1, 3)),
        Says(kind="zeroed", when=lambda r: r.step == 3),
    )
    assert steps(one, record(0, inf=2), record(1, inf=2), record(2, inf=2)) == [1]
    one.begin_step()
    assert one.look((), record(3, inf=2), {})
    assert one.repeats("zeroed", LOSS) is None


def test_an_infinite_loss_keeps_the_failure_open():
    one = judge(Says(kind="inf", site=LOSS, when=lambda r: r.step == 0))
    steps(one, record(0, inf=1, site=LOSS), record(1, inf=1, site=LOSS))
    assert one.repeats("nan", OUTPUT) == "follows from incident i0"


def test_fingerprints_ignore_the_number_of_the_call():
    third = Site(module="a", kind="output", leaf="x", call=3)
    first = Site(module="a", kind="output", leaf="x")
    assert fingerprint("nan", third) == fingerprint("nan", first)
    assert fingerprint("nan", None) != fingerprint("inf", None)
