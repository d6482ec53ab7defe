"""Small networks and loops that tests record and replay; importable by name, as user code is."""

from __future__ import annotations

import random

import torch
from torch import nn
from torch.nn.functional import mse_loss


class Net(nn.Module):
    """Dropout, BatchNorm, a counter and a dictionary as output."""

    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3)
        )
        self.head = nn.Linear(width, 2)
        self.calls = 0

    def forward(self, x, scale=1.0):
        self.calls += 1
        hidden = self.body(x)
        return {"out": self.head(hidden) * scale + self.calls, "hidden": hidden}


class Noisy(nn.Module):
    """Draws from two generators, counts, and keeps a list of its own."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.4)
        self.last = nn.Linear(8, 3)
        self.calls = 0
        self.history = []

    def forward(self, x, *, scale=1.0):
        self.calls += 1
        self.history.append(self.calls)
        hidden = self.drop(torch.relu(self.norm(self.first(x)))) * self.calls
        return self.last(hidden) * scale * (1 + random.random())


class OtherNet(Net):
    """The same parameters, another computation."""

    def forward(self, x, scale=1.0):
        return {key: value * 2 for key, value in super().forward(x, scale).items()}


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh())

    def forward(self, z):
        return self.body(z)


class Picky(nn.Module):
    """Raises for batches of three."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x):
        if len(x) == 3:
            raise LookupError("three is too few")
        return self.inner(x)


def make():
    """Return an untrained network, as `--model` takes it."""
    return Net()


def make_wide():
    """Return one whose weights have other shapes."""
    return Net(width=9)


def make_other():
    """Return one with the same weights that computes something else."""
    return OtherNet()


def make_nothing():
    """Return what is no model."""
    return 7


def batch(seed, rows=6):
    """Return a batch of inputs and targets."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(rows, 4, generator=generator),
        "y": torch.randn(rows, 2, generator=generator),
    }


def plain(model, data):
    """Compute the loss from outputs alone."""
    return mse_loss(model(data["x"])["out"], data["y"])


def with_noise(model, data):
    """Draw from the global generator before the model does."""
    x = data["x"] + 0.1 * torch.randn_like(data["x"])
    return mse_loss(model(x, scale=0.5)["out"], data["y"])


def weight_penalty(model, data):
    """Add a term that reaches weights directly."""
    return plain(model, data) + 0.1 * sum(p.square().sum() for p in model.parameters())


def gradient_penalty(model, data):
    """Add the norm of the gradient at the input."""
    x = data["x"].clone().requires_grad_()
    out = model(x)["out"]
    (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return mse_loss(out, data["y"]) + gradient.square().sum()


def hooked(model, data):
    """Take the loss of an activation that a hook brought out."""
    kept = []
    handle = model.body[0].register_forward_hook(lambda _m, _a, out: kept.append(out))
    out = model(data["x"])["out"]
    handle.remove()
    return mse_loss(out, data["y"]) + kept[0].square().mean()


def slice_changed(model, data):
    """Change a slice of an output in place before the loss."""
    out = model(data["x"])["out"]
    out[:, 0] *= 3
    return mse_loss(out, data["y"])


def two_calls(model, data):
    """Call the model twice for one loss."""
    first, second = model(data["x"])["out"], model(data["x"] * 2)["out"]
    return mse_loss(first, data["y"]) + second.abs().mean()


def shared_autocast(model, data):
    """Call twice inside one autocast block."""
    with torch.autocast("cpu", torch.bfloat16):
        first, second = model(data["x"])["out"], model(data["x"] * 2)["out"]
    return mse_loss(first.float(), data["y"]) + second.float().square().mean()


def separate_autocast(model, data):
    """Call twice, each in an autocast block of its own."""
    outs = []
    for factor in (1, 2):
        with torch.autocast("cpu", torch.bfloat16):
            outs.append(model(data["x"] * factor)["out"].float())
    return mse_loss(outs[0], data["y"]) + outs[1].square().mean()


def nan_loss(model, data):
    """Make the loss NaN in code outside every module."""
    out = model(data["x"])["out"]
    return mse_loss(out, data["y"]) + (out.sum() * 0) / (out.sum() * 0)


def raises_in_loss(model, data):
    """Raise after the model was called."""
    model(data["x"])
    raise KeyError("no such label")
