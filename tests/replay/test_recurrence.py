"""A failure shows again only as the same kind of finding at the same kind of site."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from replay.engine import Trace
from replay.episode import Episode, RecordedCall
from replay.fidelity import Comparison
from replay.raised import Raised
from replay.recurrence import recurs

NAN, INF = float("nan"), float("inf")
EXACT = Comparison(outputs="bit_exact", gradients="bit_exact")
APART = Comparison(outputs="diverged", gradients="none")
CALL = RecordedCall(index=0, root="", module="", fresh=lambda: ((), {}))
EPISODE = Episode(step=4, calls=(CALL, replace(CALL, index=1)))


def trace(*outputs, **fields):
    """Return a trace of calls with one output each."""
    return Trace(outputs=tuple((("", torch.tensor(value)),) for value in outputs), **fields)


def manifest(kind, site=None, limit=0.0):
    found = {"kind": kind, "site": site, "limit": limit}
    return {"kind": kind, "site": site, "findings": [found]}


def again(kind, site, found, comparison=EXACT, episode=EPISODE, models=None, **details):
    return recurs(manifest(kind, site, **details), episode, found, comparison, models or {}).again


def test_outputs():
    good, bad, infinite = [1.0, 2.0], [1.0, NAN], [INF, 1.0]
    assert again("nan", ":output:#0", trace(bad, good))
    assert again("nan", ":output:#1", trace(good, bad))
    assert again("nan", ":output:#0", trace(good, bad)) is False
    assert again("nan", ":output:#7", trace(good, bad)), "the same kind of site will do"
    assert again("inf", ":output:#0", trace(infinite, good))
    assert again("inf", ":output:#0", trace(bad, good)) is False
    assert again("nan", ":output:#0", trace(infinite, good)) is False
    assert again("nan", ":output:#0", trace(good, good)) is False


def test_values_that_never_are_bad():
    whole = Trace(outputs=((("", torch.tensor([1, 2])),),))
    assert again("nan", ":output:#0", whole) is False
    assert again("zeroed", ":output:#0", whole) is False
    small = Trace(outputs=((("", torch.tensor([1.0, NAN]).to(torch.float8_e5m2)),),))
    assert again("nan", ":output:#0", small)
    sparse = Trace(outputs=((("", torch.tensor([0.0, NAN]).to_sparse()),),))
    assert again("nan", ":output:#0", sparse)
    parts = Trace(outputs=((("", torch.tensor([complex(1, INF)])),),))
    assert again("inf", ":output:#0", parts)


def test_zeroed_outputs():
    assert again("zeroed", ":output:#0", trace([0.0, 0.0]))
    assert again("zeroed", ":output:#0", trace([0.0, 1e-7]), limit=1e-6)
    assert again("zeroed", ":output:#0", trace([0.0, 1e-5]), limit=1e-6) is False
    assert again("zeroed", ":output:#0", trace([NAN, 0.0])) is False


def test_gradients():
    bad = trace([1.0], gradients={":layer.weight": torch.tensor([NAN])})
    good = trace([1.0], gradients={":layer.weight": torch.tensor([1.0])})
    zero = trace([1.0], gradients={":layer.weight": torch.tensor([0.0])})
    site = "layer:param_grad:weight#0"
    assert again("nan", site, bad)
    assert again("nan", site, good) is False
    unavailable = replace(EXACT, gradients="unavailable", reason="another path")
    assert again("nan", site, good, unavailable) is None
    assert again("nan", site, bad, unavailable)
    assert again("zeroed", None, zero)
    assert again("zeroed", None, good) is False


def test_buffers_and_parameters():
    bad = trace([1.0], buffers={":norm.mean": torch.tensor([NAN])})
    assert again("nan", "norm:buffer:mean#0", bad)
    assert again("nan", "norm:buffer:mean#0", trace([1.0])) is False
    model = nn.Linear(1, 1)
    site = ":param:weight#0"
    found = recurs(manifest("nan", site), EPISODE, trace([1.0]), EXACT, {"": model})
    assert found.again
    assert "as recorded" in found.text
    assert again("nan", site, trace([1.0]), APART, models={"": model}) is False
    model.weight.data.fill_(NAN)
    assert again("nan", site, trace([1.0]), APART, models={"": model})


def test_weights_after_the_update_tell_nothing_of_the_step():
    gap = {"what": "weights before the update", "why": "it showed too late"}
    known = {**manifest("nan", ":param:weight#0"), "not_captured": [gap]}
    found = recurs(known, EPISODE, trace([1.0]), APART, {"": nn.Linear(1, 1)})
    assert found.again is None
    assert found.text.startswith("the incident holds the weights after the update")


def test_loss():
    assert again("nan", ":loss:#0", trace([1.0], loss=torch.tensor(NAN), whole=True))
    assert again("nan", ":loss:#0", trace([1.0], loss=torch.tensor(1.0), whole=True)) is False
    assert again("nan", ":loss:#0", trace([1.0]))
    assert again("nan", ":loss:#0", trace([1.0]), APART) is False


@pytest.mark.parametrize("kind", ["manual", "loss_spike", "exploding_grad"])
def test_kinds_without_a_bad_value_stand_where_the_replay_is_exact(kind):
    assert again(kind, None, trace([1.0]))
    assert again(kind, None, trace([1.0]), APART) is False
    assert again(kind, None, trace([1.0]), replace(EXACT, gradients="diverged")) is False


def test_what_is_told():
    texts = {
        (kind, site): recurs(manifest(kind, site), EPISODE, found, EXACT, {}).text
        for kind, site, found in (
            ("manual", None, trace([1.0])),
            ("exploding_grad", None, trace([1.0])),
            ("loss_spike", ":loss:#0", trace([1.0])),
            ("nan", "enc:output:['a']#0", trace([NAN])),
            ("nan", "norm:buffer:mean#0", trace([1.0])),
            ("zeroed", ":output:#1", trace([1.0, 1.0], [0.0, 0.0])),
        )
    }
    assert texts["manual", None] == "what was captured by request runs again"
    assert "gradients are those" in texts["exploding_grad", None]
    assert texts["loss_spike", ":loss:#0"].startswith("the loss spike is as recorded")
    assert texts["nan", "enc:output:['a']#0"] == "output ['a'] of enc is nan again"
    assert texts["nan", "norm:buffer:mean#0"] == "buffer norm.mean is not nan in the replay"
    assert texts["zeroed", ":output:#1"] == "output of the model is zero again: absmax 0"


def raised(name):
    return Raised(type=name, message="m", phase="forward", module=None)


def test_exceptions():
    episode = replace(
        EPISODE, calls=(replace(CALL, raised=True),), exception={"type": "torch.OutOfMemoryError"}
    )
    assert again(
        "exception", None, trace(exception=raised("torch.OutOfMemoryError")), EXACT, episode
    )
    assert again("exception", None, trace(exception=raised("ValueError")), EXACT, episode) is False
    assert again("exception", None, trace([1.0]), EXACT, episode) is False
    outside = replace(EPISODE, exception={"type": "KeyError"})
    assert again("exception", None, trace([1.0]), EXACT, outside) is None
    assert again("exception", None, trace([1.0], whole=True), EXACT, outside) is False


def test_a_replay_that_raises_what_was_not_recorded_tells_nothing():
    assert again("nan", ":output:#0", trace([NAN], exception=raised("ValueError"))) is None
