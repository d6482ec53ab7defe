"""Culprits in odd places: views, empty memory, custom functions, shared modules, buffers."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tests.replay.failures.base import Part, case, direct, positive, value


class InPlaceView(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 2:4].div_(x[:, :1])
        return y


class Sliced(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.head = InPlaceView(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.scale(x))


case(
    "in_place_on_a_view",
    Sliced,
    value(0.0),
    kind="nan",
    phase="forward",
    module="scale",
    op="aten.div_.Tensor",
    sample=5,
)


class Scatter(nn.Module):
    """Rows are written one by one into memory that was allocated empty."""

    def forward(self, x):
        out = torch.empty_like(x)
        for row in range(x.shape[0]):
            out[row] = x[row].log()
        return out


class Filled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fill, self.head = Scatter(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.fill(x))


case(
    "rows_written_into_empty_memory",
    Filled,
    positive(-1.0),
    kind="nan",
    phase="forward",
    module="fill",
    op="aten.log.default",
    sample=5,
)


class LogFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * 2).log() + 1

    @staticmethod
    def backward(ctx, grad):
        return grad / ctx.saved_tensors[0]


case(
    "custom_function_forward",
    direct(LogFunction.apply),
    positive(-1.0),
    kind="nan",
    phase="forward",
    module="part",
    op="aten.log.default",
    sample=5,
)


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.unit = Part(lambda x: x.sqrt())
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        a = self.unit(x.abs())
        b = self.unit(x.abs() + 1)
        return self.last(a + b + self.unit(x))


case(
    "third_call_of_a_shared_module",
    Reused,
    positive(-9.0),
    kind="nan",
    phase="forward",
    module="unit",
    op="aten.sqrt.default",
    sample=5,
    call=2,
)


class ManyCalls(nn.Module):
    """Encoder and decoder entered from outside, one after the other."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 6), Part(lambda z: torch.sqrt(z))

    def forward(self, x):
        raise NotImplementedError


case(
    "second_call_from_outside",
    ManyCalls,
    positive(-50.0),
    loss=lambda model, x: model.encoder(x).sum() * 0 + model.decoder(x).pow(2).mean(),
    kind="nan",
    phase="forward",
    module="decoder",
    op="aten.sqrt.default",
    sample=5,
    root_call=1,
)


class Unregistered(nn.Module):
    """A submodule in a plain list has no name of its own."""

    def __init__(self):
        super().__init__()
        self.holder = [Part(torch.log)]
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.holder[0](x))


case(
    "module_that_is_not_registered",
    Unregistered,
    positive(-1.0),
    kind="nan",
    phase="forward",
    module="",
    op="aten.log.default",
    sample=5,
)


class Potential(nn.Module):
    """Forces as the gradient of an energy, inside the forward."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 6, bias=False)

    def forward(self, x):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            energy = self.mix(x).pow(2).sum(-1).sqrt().sum()
            (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return force


case(
    "force_as_gradient_in_the_forward",
    Potential,
    value(0.0),
    kind="nan",
    phase="forward",
    module="",
    op="aten.div.Tensor",
    backward_of="aten.sqrt.default",
    sample=5,
)


class Running(nn.Module):
    """Keeps a statistic that breaks while outputs stay fine."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(6))
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        with torch.no_grad():
            self.scale.mul_(0.9).add_(1 / x.abs().amin(0), alpha=0.1)
        return self.last(x)


case(
    "buffer_spoiled_in_the_forward",
    lambda: nn.Sequential(Running()),
    value(0.0),
    kind="inf",
    phase="parameter",
    module="0",
    op="aten.reciprocal.default",
    sample=5,
)


class Outside(nn.Module):
    """Computes a scale with NumPy, where no operator is seen."""

    def forward(self, x):
        with np.errstate(invalid="ignore"):
            scale = np.sqrt(x.detach().numpy().mean(-1, keepdims=True))
        return x * torch.from_numpy(scale)


class Foreign(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.head = Outside(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.scale(x))


case(
    "made_outside_torch",
    Foreign,
    positive(-1.0),
    kind="nan",
    phase="forward",
    module="scale",
    op=None,
    sample=5,
)
