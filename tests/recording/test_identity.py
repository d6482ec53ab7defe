import pytest
import torch
from torch import nn

from flightrec.errors import UsageError
from flightrec.recording.identity import (
    TEXT_LIMIT,
    exception_json,
    optimizers_json,
    optimizers_of,
    roots_of,
    step_fn_json,
)


def step(model, batch):
    return model(batch).sum()


class Holder:
    @staticmethod
    def step(model, batch):
        return model(batch).sum()


def test_roots():
    model = nn.Linear(1, 1)
    assert roots_of(model) == {"": model}
    assert roots_of({"net": model}) == {"net": model}
    for wrong in (None, [], {}, {"a:b": model}, {"": model}, {"a": 1}, nn.Linear):
        with pytest.raises(UsageError, match="model"):
            roots_of(wrong)


def test_optimizers():
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.5)
    assert optimizers_of(None) == {}
    assert optimizers_of(optimizer) == {"": optimizer}
    assert optimizers_of([optimizer]) == {"0": optimizer}
    assert optimizers_of({"g": optimizer}) == {"g": optimizer}
    with pytest.raises(UsageError, match=r"optimizer\[1\]"):
        optimizers_of([optimizer, "adam"])


def test_optimizers_are_named_with_their_parameters():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(
        [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.1}], lr=1
    )
    named = {":weight": model.weight, ":bias": model.bias}
    (entry,) = optimizers_json({"": optimizer}, named)
    assert entry["class"] == "torch.optim.sgd:SGD"
    assert entry["lr"] == [1.0, 0.1]
    assert entry["parameters"] == [[":weight"], [":bias"]]


def test_step_functions_by_name_and_source():
    entry = step_fn_json(step)
    assert entry["name"].endswith("test_identity:step")
    assert "model(batch).sum()" in entry["source"]
    assert step_fn_json(Holder.step)["name"].endswith("Holder.step")
    assert step_fn_json(None) is None
    for wrong in (lambda m, b: 0, "step", 3):
        with pytest.raises(UsageError, match="step_fn"):
            step_fn_json(wrong)


def test_exceptions_are_bounded_and_survive_a_broken_message():
    class Broken(Exception):
        def __str__(self):
            raise RuntimeError

    def fail(error):
        with pytest.raises(type(error)) as caught:
            raise error
        return exception_json(caught.value)

    assert fail(IndexError("index out of range"))["type"] == "IndexError"
    assert len(fail(ValueError("x" * 10_000))["message"]) == TEXT_LIMIT
    broken = fail(Broken())
    assert "cannot be formatted" in broken["message"]
    assert broken["traceback"][-1]["function"] == "fail"
    assert broken["traceback"][-1]["code"] == "raise error"
