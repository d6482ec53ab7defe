"""What the small failures are made of: a training loop whose fourth step goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass
class Case:
    """A training loop in the shape of the quality cases."""

    name: str
    model: Any
    data: Any
    """`data(generator, bad)` returns one batch."""

    loss: Any = None
    truth: dict = field(default_factory=dict)
    training: bool = True

    def build(self):
        torch.manual_seed(5)
        return self.model()

    def batches(self):
        generator = torch.Generator().manual_seed(11)
        for number in range(FAILING + 1):
            yield self.data(generator, number == FAILING)

    def step(self, model, batch):
        if self.loss is not None:
            return self.loss(model, batch)
        output = model(*batch) if isinstance(batch, tuple) else model(batch)
        return output.float().pow(2).mean()

    def optimizer(self, model):
        parameters = [each for each in model.parameters() if each.requires_grad]
        return torch.optim.SGD(parameters, lr=1e-3) if self.training and parameters else None


CASES: list[Case] = []


def case(name, model, data, *, loss=None, training=True, **truth):
    CASES.append(Case(name=name, model=model, data=data, loss=loss, truth=truth, training=training))


class Wrapped(nn.Module):
    """A body of two layers around the part that goes wrong."""

    def __init__(self, part, width=6, out=None):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.part = part
        self.last = nn.Linear(out or width, 3)

    def forward(self, x):
        return self.last(self.part(self.first(x) + x))


class Part(nn.Module):
    """One function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def rows(generator, bad, *, size=8, width=6, row=5, value=None):
    x = torch.randn(size, width, generator=generator)
    if bad and value is not None:
        x[row] = value
    return x


def direct(function):
    """A model that hands its input to the part first, then to a layer."""

    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Part(function)
            self.last = nn.Linear(6, 3)

        def forward(self, x):
            return self.last(self.part(x))

    return Direct


def value(number, **kwargs):
    return lambda g, bad: rows(g, bad, value=number, **kwargs)


def positive(number, row=5):
    def data(generator, bad):
        x = torch.rand(8, 6, generator=generator) * 0.8 + 0.1
        if bad:
            x[row] = number
        return x

    return data


def after_layer(function, out=6):
    class After(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(6, 6, bias=False)
            self.part = Part(function)
            self.last = nn.Linear(out, 3)

        def forward(self, x):
            return self.last(self.part(self.first(x)))

    return After


def masked(generator, bad):
    keep = torch.ones(4, 5, dtype=torch.bool)
    for row in range(4):
        keep[row, int(torch.randint(2, 6, (1,), generator=generator)) :] = False
    if bad:
        keep[2] = False
    return torch.randn(4, 5, 6, generator=generator), keep


FAILING = 3
