"""Gradients that enter through outputs."""

from __future__ import annotations

import math

import torch

from replay.episode import Episode, RecordedBackward
from replay.incoming import mended, without_bad
from replay.values import make_finite

GOOD, BAD = torch.ones(2), torch.tensor([1.0, math.nan])


def episode(*passes):
    backwards = [
        RecordedBackward(
            number=number,
            after_call=1,
            gradients=lambda each=each: [(0, str(n), value) for n, value in enumerate(each)],
        )
        for number, each in enumerate(passes)
    ]
    return Episode(step=0, calls=(), backwards=tuple(backwards))


def leaves(found):
    return [[leaf for _, leaf, _ in each.gradients()] for each in found.backwards]


def test_bad_gradient_beside_good_ones_is_left_out():
    assert leaves(without_bad(episode([GOOD, BAD, GOOD], [BAD]))) == [["0", "2"], []]


def test_nothing_changes_where_all_or_none_are_bad():
    assert without_bad(episode([GOOD], [GOOD])) is None
    assert without_bad(episode([BAD], [BAD, BAD])) is None
    assert without_bad(episode()) is None


def test_mended_gradients_are_copies():
    found = mended(episode([BAD]), make_finite)
    ((_, _, value),) = found.backwards[0].gradients()
    assert value.tolist() == [1.0, 0.0]
    assert BAD.isnan().any()
