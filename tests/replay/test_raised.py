"""An exception is described by the innermost module and its lines."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from replay.raised import describe


class Picks(nn.Module):
    def forward(self, x):
        return x[7]


def test_innermost_module_and_frames():
    model = nn.Sequential(nn.Identity(), Picks())
    names = {id(model): ":", id(model[0]): ":0", id(model[1]): ":1"}
    with pytest.raises(IndexError) as caught:
        model(torch.zeros(3))
    found = describe(caught.value, names, phase="forward", call=2)
    assert (found.type, found.module, found.call) == ("IndexError", ":1", 2)
    assert "out of bounds" in found.message
    assert found.traceback[-1].code == "return x[7]"
    assert found.traceback[-1].function == "Picks.forward"


def test_outside_every_module_and_a_class_of_a_library():
    with pytest.raises(RuntimeError) as caught:
        raise torch.OutOfMemoryError("too much")
    found = describe(caught.value, {}, phase="loss")
    assert (found.type, found.module, found.call) == ("torch.OutOfMemoryError", None, None)
