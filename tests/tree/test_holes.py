"""Values that wait for others."""

from flightrec.tree.holes import Hole, filled


def test_without_holes_it_is_built_at_once():
    assert filled([1, 2], tuple) == (1, 2)


def test_a_hole_is_filled_once():
    made = []
    hole = Hole(lambda: made.append(1) or [1])
    outer = filled([hole, 2], tuple)
    assert isinstance(outer, Hole)
    assert made == []
    assert outer.fill() == ([1], 2)
    assert outer.fill() is outer.fill()
    assert made == [1]
