"""Only outermost entries into known modules are told, and hooks go away."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.checkpoint import checkpoint

from replay.entries import Entries
from replay.episode import RecordedCall


class Listener:
    def __init__(self):
        self.heard = []

    def call_at(self, key):
        root, _, name = key.partition(":")
        return RecordedCall(index=0, root=root, module=name, fresh=lambda: ((), {}))

    def begin(self, call, module):
        self.heard.append(("begin", f"{call.root}:{call.module}"))

    def end(self, call, output):
        self.heard.append(("end", None if output is None else tuple(output.shape)))


def names(model):
    return {id(module): f":{name}" for name, module in model.named_modules()}


def test_outermost_entries_of_known_modules():
    model, stranger = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), nn.Linear(2, 2)
    listener = Listener()
    with Entries(listener, names(model)):
        stranger(model(torch.zeros(4, 3)))
        model[0](torch.zeros(1, 3))
    assert listener.heard == [("begin", ":"), ("end", (4, 2)), ("begin", ":0"), ("end", (1, 2))]
    model(torch.zeros(4, 3))
    assert len(listener.heard) == 4
    assert not torch_module._global_forward_pre_hooks
    assert not torch_module._global_forward_hooks


def test_a_call_that_raises_ends_too():
    model = nn.Sequential(nn.Linear(3, 2))
    listener = Listener()
    with pytest.raises(RuntimeError), Entries(listener, names(model)):
        model(torch.zeros(4, 5))
    assert listener.heard == [("begin", ":"), ("end", None)]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_no_call(reentrant):
    block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    listener = Listener()
    with Entries(listener, names(block)):
        x = torch.zeros(2, 3, requires_grad=True)
        checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert listener.heard == [("begin", ":"), ("end", (2, 3))]
