"""Models come back as they were, whatever a forward did to them."""

from __future__ import annotations

from collections import Counter, defaultdict, deque

import pytest
import torch
from torch import nn

from replay.bits import same_bits
from replay.pristine import Pristine, checksum, thaw


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3))
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("nothing", None)
        self.plain = torch.randn(3)
        self.seen = [torch.zeros(2), 1]
        self.inner = {"a": [1, 2], "b": deque([3])}
        self.counts = Counter(x=1)
        self.lists = defaultdict(list)
        self.alias = self.seen
        self.steps = 0


def state(model):
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return kept, repr({k: v for k, v in vars(model).items() if not k.startswith("_")})


@pytest.mark.parametrize("copied", [True, False])
def test_everything_comes_back(copied):
    model = Model()
    weight = model.weight.detach().clone()
    buffer, container = model.mean, model.seen
    before = state(model)
    pristine = Pristine({"": model}, None if copied else {":weight": weight}.__getitem__)
    assert pristine.restore() == []
    model.weight.data.add_(1)
    model.weight.grad = torch.ones(5, 3)
    model.weight.requires_grad_(False)
    model.mean.mul_(2)
    model.mean = torch.zeros(7)
    model.nothing = torch.ones(1)
    model.plain.zero_()
    model.seen[0].add_(1)
    model.seen.append("more")
    model.inner["a"].append(3)
    model.inner["b"].clear()
    model.counts["y"] += 1
    model.lists["z"].append(1)
    model.steps = 9
    model.extra = "new"
    assert pristine.restore() == [":weight"]
    after = state(model)
    assert after[1] == before[1]
    assert all(same_bits(before[0][name], after[0][name]) for name in before[0])
    assert model.mean is buffer
    assert model.seen is model.alias is container
    assert model.weight.grad is None
    assert model.weight.requires_grad
    assert not hasattr(model, "extra")
    assert pristine.restore() == []


def test_parameter_that_was_replaced():
    model = nn.Linear(2, 2)
    original = model.weight
    pristine = Pristine({"": model})
    model.weight = nn.Parameter(torch.zeros(3, 3))
    pristine.restore()
    assert model.weight is original


def test_parameter_whose_data_was_exchanged():
    model = nn.Linear(2, 2)
    kept = model.weight.detach().clone()
    pristine = Pristine({"": model})
    model.weight.data = torch.zeros(4, 4)
    assert pristine.restore() == [":weight"]
    assert same_bits(model.weight.detach(), kept)


def test_attributes_are_handed_out_as_they_were():
    model = Model()
    pristine = Pristine({"": model})
    model.inner["a"].append(3)
    model.plain.zero_()
    model.steps = 4
    assert pristine.attribute(model, "inner") == {"a": [1, 2], "b": deque([3])}
    assert pristine.attribute(model, "steps") == 0
    assert pristine.attribute(model, "plain").any()
    assert pristine.knows(model, "steps")
    assert not pristine.knows(model, "extra")


def test_hooks_are_left_alone():
    model = nn.Linear(2, 2)
    pristine = Pristine({"": model})
    handle = model.register_forward_hook(lambda *_: None)
    pristine.restore()
    assert len(model._forward_hooks) == 1
    handle.remove()


def test_thaw_copies_tensors_and_containers_and_shares_the_rest():
    tensor, parameter, other = torch.zeros(1), nn.Parameter(torch.zeros(1)), object()
    value = {"a": [tensor, (1, [2])], "b": {3}, "c": (parameter, other)}
    copied = thaw(value)
    assert copied["a"][0] is not tensor
    assert same_bits(copied["a"][0], tensor)
    assert copied["c"][0] is parameter
    assert copied["c"][1] is other
    assert copied["a"][1][1] is not value["a"][1][1]
    copied["b"].add(4)
    assert value["b"] == {3}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64, torch.bool])
@pytest.mark.parametrize("size", [0, 1, 7, 64])
def test_checksum_sees_one_flipped_bit(dtype, size):
    tensor = torch.zeros(size, dtype=dtype)
    before = checksum(tensor)
    assert checksum(tensor[1:]) == before
    if size:
        tensor[-1] = 1
        assert checksum(tensor) != before
