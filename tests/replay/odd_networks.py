"""Networks with habits that make a replay hard; importable by name, as user code is."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn


class KeepsHidden(nn.Module):
    """Keeps its hidden state in a plain attribute between calls."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 8)
        self.hidden = None

    def forward(self, x):
        hidden = self.cell(x, self.hidden)
        self.hidden = hidden.detach()
        return hidden


class WritesHiddenInPlace(KeepsHidden):
    """The same, written in place."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.zeros(6, 8)

    def forward(self, x):
        hidden = self.cell(x, self.hidden.clone())
        self.hidden.copy_(hidden.detach())
        return hidden


class Caches(nn.Module):
    """Keeps a dictionary and a list that grow, and looks into them."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.cache = {}
        self.seen = []

    def forward(self, x):
        self.seen.append(len(self.seen))
        total = self.cache.get("total", torch.zeros(()))
        self.cache["total"] = total + x.detach().sum()
        return self.layer(x) * len(self.seen) + self.cache["total"]


class Draws(nn.Module):
    """Draws from every kind of generator, private ones too."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.torch_generator = torch.Generator().manual_seed(3)
        self.numpy_generator = np.random.default_rng(3)
        self.python_generator = random.Random(3)

    def forward(self, x):
        noise = torch.randn(4, generator=self.torch_generator) + torch.randn(4)
        factor = self.numpy_generator.normal() + np.random.normal()
        shift = self.python_generator.random() + random.random()
        return self.layer(x) * noise * factor + shift


class ChangesInput(nn.Module):
    """Changes its input in place, and appends to a list inside the batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, batch):
        batch["x"].sub_(0.1).mul_(1.5)
        batch["seen"].append(1)
        return self.layer(batch["x"].clone()) * len(batch["seen"])


class Mode(nn.Module):
    """Is called in train and in eval mode in one step."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(x))


class SpectralNorm(nn.Module):
    """Has a power iteration that runs in each forward pass."""

    def __init__(self):
        super().__init__()
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))

    def forward(self, x):
        return self.layer(x)


class OldWeightNorm(nn.Module):
    """Makes its weight anew by a hook, as `torch.nn.utils.weight_norm` does."""

    def __init__(self):
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))

    def forward(self, x):
        return self.layer(x)


class WritesParameter(nn.Module):
    """Moves a codebook through `.data`, as many vector quantizers do."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(5, 4)

    def forward(self, x):
        index = torch.cdist(x, self.codes.weight).argmin(1)
        return x + (self.codes(index) - x).detach() + self.codes(index) * 0.1


class SharesAndFreezes(nn.Module):
    """Ties a weight and freezes a layer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        return self.frozen(self.second(torch.tanh(self.first(x))))


class Inner(nn.Module):
    """Takes a parameter as argument and gives a dataclass-like tuple."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.body = nn.Linear(4, 4)

    def project(self, hidden):
        """Enter a submodule from outside the root's forward, with a parameter as argument."""
        return self.body(hidden), self.embed.weight

    def forward(self, x):
        return self.body(x)
