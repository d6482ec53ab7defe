"""Exceptions, and failures in code that is not run again."""

from __future__ import annotations

import pytest
import torch

from replay.episode import Episode
from replay.raising import new_in_batch, outside


def episode(**fields):
    return Episode(step=7, calls=(), **fields)


def test_bad_loss_of_good_outputs_is_told():
    found = outside(episode(loss=torch.tensor(float("inf"))), (), "inf")
    assert (found.kind, found.phase, found.step, found.module) == ("inf", "loss", 7, None)
    assert "step_fn" in found.evidence[0].text


@pytest.mark.parametrize(
    ("loss", "kind"),
    [(torch.tensor(1.0), "nan"), (None, "nan"), (torch.tensor(float("nan")), "manual")],
)
def test_nothing_is_said_where_the_loss_is_no_fault(loss, kind):
    assert outside(episode(loss=loss), (), kind) is None


def test_bad_batch_is_blamed_for_a_bad_loss():
    y = torch.ones(4, 2)
    y[2, 1] = float("nan")
    failing = episode(loss=torch.tensor(float("nan")), batch=lambda: {"y": y})
    found = outside(failing, (), "nan")
    assert (found.phase, found.sample, found.index) == ("data", 2, (2, 1))
    usual = episode(batch=lambda: {"y": torch.full((4, 2), float("nan"))})
    assert outside(failing, [usual], "nan").phase == "loss"


def test_new_badness_of_a_batch_is_beside_controls():
    bad = episode(batch=lambda: [torch.tensor([float("inf"), 1.0]), torch.zeros(2)])
    assert new_in_batch(bad, ()) == [("[0]", "+inf"), ("[1]", "zero")]
    assert new_in_batch(bad, [bad]) == []
    assert new_in_batch(episode(), ()) == []


@pytest.mark.parametrize(
    ("folder", "phase"), [("optim", "optimizer"), ("autograd", "backward"), ("nn", "loss")]
)
def test_part_of_the_step_is_told_from_the_traceback(folder, phase):
    frames = [
        {"file": "/srv/x/train.py", "line": 3, "function": "main"},
        {"file": f"/env/lib/site-packages/torch/{folder}/x.py", "line": 1, "function": "f"},
    ]
    exception = {"type": "RuntimeError", "message": "no", "traceback": frames}
    found = outside(episode(exception=exception), (), "exception")
    assert (found.kind, found.phase) == ("exception", phase)
    assert found.source.line == 3
    assert found.evidence[0].text == "RuntimeError: no"
