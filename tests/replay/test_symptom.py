"""Which stage is bad first, beside what healthy steps had there."""

from __future__ import annotations

import pytest

from replay.symptom import Look, Watch
from tests.replay.logs import GOOD, MINUS, NAN, PLUS, ZERO, size


def look(exception=None, **stages):
    values = {
        where: {(0, leaf): flags for leaf, flags in found.items()}
        for where, found in stages.items()
    }
    return Look(values=values, exception=exception)


def find(seen, *controls, kind="manual"):
    return Watch(controls).find(seen, kind)


def test_healthy_run_has_no_symptom():
    assert find(look(output={"": GOOD}, gradient={":w": GOOD})) is None


@pytest.mark.parametrize(
    ("stages", "where", "kind"),
    [
        ({"output": {"": MINUS}, "loss": {"": NAN}}, "output", "inf"),
        ({"output": {"a": PLUS, "b": NAN}}, "output", "nan"),
        ({"loss": {"": PLUS}, "gradient": {":w": NAN}}, "loss", "inf"),
        ({"gradient": {":w": NAN}, "buffer": {":b": PLUS}}, "gradient", "nan"),
        ({"output": {"": GOOD}, "buffer": {":b": PLUS}}, "buffer", "inf"),
    ],
)
def test_first_bad_stage_decides(stages, where, kind):
    found = find(look(**stages))
    assert (found.where, found.kind) == (where, kind)


def test_class_that_controls_have_at_a_leaf_is_usual():
    masked = look(output={"logits": MINUS, "value": GOOD})
    assert find(masked, masked) is None
    found = find(look(output={"logits": MINUS, "value": NAN}), masked)
    assert found.keys == ((0, "value"),)
    assert not found.shows(masked)


def test_output_is_zeroed_beside_its_healthy_size():
    healthy = look(output={"": size(2.0)})
    assert find(look(output={"": size(1e-4)}), healthy).kind == "zeroed"
    assert find(look(output={"": size(1e-2)}), healthy) is None
    assert find(look(output={"": size(1e-9)})) is None
    assert find(look(output={"": ZERO})).kind == "zeroed"
    assert find(look(output={"": ZERO}), look(output={"": ZERO})) is None


def test_all_gradients_being_zero_is_a_symptom_and_some_are_not():
    found = find(look(output={"": GOOD}, gradient={":a": ZERO, ":b": ZERO}))
    assert (found.kind, found.where) == ("zeroed", "gradient")
    assert find(look(gradient={":a": ZERO, ":b": GOOD})) is None


def test_kind_of_the_incident_says_what_is_looked_for():
    both = look(output={"": ZERO}, gradient={":w": NAN})
    assert find(both, kind="zeroed").kind == "zeroed"
    assert find(both, kind="nan").where == "gradient"


def test_exception_comes_first():
    found = find(look(exception="ValueError: no", output={"": NAN}))
    assert found.kind == "exception"
    assert found.shows(look(exception="KeyError: other"))
    assert not found.shows(look(output={"": NAN}))


def test_symptom_shows_also_where_an_earlier_stage_went_bad():
    found = find(look(gradient={":w": NAN}))
    assert found.shows(look(output={"": PLUS}, gradient={":w": GOOD}))
    assert found.shows(look(exception="ValueError: no"))
    assert not found.shows(look(output={"": GOOD}, gradient={":w": GOOD}, buffer={":b": NAN}))


def inner(watch, seen, *, known):
    return [(each.kind, each.keys[0][1]) for each in watch.inner(seen, known=known)]


def test_inner_output_counts_where_controls_had_it_otherwise():
    control = look(inner={"a": GOOD, "b": MINUS, "c": GOOD})
    seen = look(inner={"a": ZERO, "b": MINUS, "c": PLUS, "d": NAN})
    assert inner(Watch([control]), seen, known=True) == [("inf", "c"), ("zeroed", "a")]


def test_everything_bad_inside_counts_where_nothing_is_known():
    seen = look(inner={"a": ZERO, "b": MINUS, "c": GOOD})
    assert inner(Watch([]), seen, known=False) == [("inf", "b"), ("zeroed", "a")]


def test_inner_symptom_shows_at_its_own_place_only():
    (found,) = Watch([]).inner(look(inner={"a": NAN}), known=False)
    assert found.shows(look(inner={"a": NAN}))
    assert not found.shows(look(inner={"a": GOOD, "b": NAN}))


def test_first_call_that_went_bad_counts():
    def calls(*found):
        return Look(values={"output": {(n, ""): flags for n, flags in enumerate(found)}})

    found = find(calls(GOOD, PLUS, NAN))
    assert (found.kind, found.keys) == ("nan", ((1, ""),))
    assert not found.shows(calls(GOOD, GOOD, NAN))
    assert found.shows(calls(NAN, GOOD, GOOD))
