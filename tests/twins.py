"""A model and the twin that was rebuilt from its description, compared bit by bit."""

from __future__ import annotations

import json

import torch
from torch import nn

from flightrec.structure import describe, rebuild
from flightrec.tree import TensorLoader, TensorTable
from flightrec.trust import Trust


def through_json(roots, trust=None, *, also=()):
    """Describe, write JSON and bytes, and rebuild from them alone; return models, description."""
    if isinstance(roots, nn.Module):
        roots = {"": roots}
    table = TensorTable()
    description = describe(roots, table, also=also)
    table.freeze()
    storages, refs = table.export()
    node = json.loads(json.dumps(description.node, allow_nan=False))
    loader = TensorLoader(refs, lambda n: storages[n].data)
    trust = trust or Trust(own=True, sources=description.sources)
    return rebuild(node, loader, trust), description


def rebuilt(model, *, notes=()):
    models, description = through_json(model)
    assert [note["what"] for note in description.not_captured] == list(notes)
    return models[""]


def run(model, *args, seed=0, **kwargs):
    """Return outputs and gradients of a training step."""
    torch.manual_seed(seed)
    model.zero_grad(set_to_none=True)
    output = model(*args, **kwargs)
    tensor = output
    while not isinstance(tensor, torch.Tensor):
        tensor = tensor[0] if isinstance(tensor, tuple | list) else next(iter(tensor.values()))
    tensor.float().square().sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return tensor.detach(), grads


def assert_same(model, twin, *args, **kwargs):
    """The twin has the same names, types and flags, shares nothing, and computes the same bits."""
    assert [n for n, _ in twin.named_modules()] == [n for n, _ in model.named_modules()]
    assert [m.training for m in twin.modules()] == [m.training for m in model.modules()]
    assert [n for n, _ in twin.named_buffers()] == [n for n, _ in model.named_buffers()]
    assert list(twin.state_dict()) == list(model.state_dict())
    theirs = {p.untyped_storage().data_ptr() for p in model.parameters() if p.numel()}
    assert not theirs & {p.untyped_storage().data_ptr() for p in twin.parameters()}
    for _ in range(2):  # the second pass sees the buffers that the first one moved
        expected, expected_grads = run(model, *args, **kwargs)
        actual, grads = run(twin, *args, **kwargs)
        assert torch.equal(actual, expected)
        assert grads.keys() == expected_grads.keys()
        assert all(torch.equal(grads[name], expected_grads[name]) for name in grads)
    for (name, mine), (_, other) in zip(model.named_buffers(), twin.named_buffers(), strict=True):
        assert torch.equal(mine, other), name
