"""Outputs that become zero."""

from __future__ import annotations

import torch
from torch import nn

from tests.replay.failures.base import case


class DeadHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 4), nn.ReLU())

    def forward(self, x):
        return self.head(self.body(x))


def dead():
    model = DeadHead()
    with torch.no_grad():
        model.head[0].weight.abs_().neg_()
        model.head[0].bias.fill_(-1.0)
        model.body.weight.abs_()
        model.body.bias.abs_()
    return model


case(
    "dead_relu",
    dead,
    lambda g, bad: torch.rand(8, 6, generator=g) + (0.1 if bad else -9.0),
    kind="zeroed",
    phase="forward",
    module="head.1",
    op="aten.relu.default",
    sample=None,
)


class Sparse(nn.Module):
    """Attention that keeps what is above a threshold, nothing for short sequences."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(6, 6)

    def forward(self, x):
        weights = (self.q(x) @ x.transpose(1, 2)).softmax(-1)
        kept = torch.where(weights < 0.95, weights, torch.zeros_like(weights))
        return kept @ x


class Blank(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = Sparse(), nn.Linear(6, 2, bias=False)

    def forward(self, x):
        return self.head(self.attention(x))


case(
    "attention_weights_all_zero",
    Blank,
    lambda g, bad: torch.randn(4, 1 if bad else 7, 6, generator=g) * 0.1,
    kind="zeroed",
    phase="forward",
    module="attention",
    op="aten.where.self",
    sample=None,
)


class OverflowingNorm(nn.Module):
    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(variance + 1e-6)


class Vanishing(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = OverflowingNorm(), nn.Linear(6, 2, bias=False)

    def forward(self, x):
        return self.head(self.norm(x))


case(
    "overflow_behind_a_zero",
    Vanishing,
    lambda g, bad: torch.randn(4, 6, generator=g) * (1e30 if bad else 1.0),
    kind="zeroed",
    phase="forward",
    module="norm",
    op="aten.pow.Tensor_Scalar",
    sample=None,
)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.open, self.head = nn.Linear(6, 6), nn.Linear(6, 2, bias=False)

    def forward(self, x):
        return self.head(torch.sigmoid(self.open(x) - x.abs().sum(-1, keepdim=True) ** 2))


case(
    "sigmoid_underflows",
    Gate,
    lambda g, bad: torch.randn(4, 6, generator=g) * (100 if bad else 0.1),
    kind="zeroed",
    phase="forward",
    module="",
    op="aten.sigmoid.default",
    sample=None,
)


class Bins(nn.Module):
    def forward(self, x):
        return torch.div(x, 10, rounding_mode="trunc")


case(
    "everything_rounded_away",
    lambda: nn.Sequential(Bins(), nn.Linear(6, 2, bias=False)),
    lambda g, bad: torch.randn(4, 6, generator=g) * (1 if bad else 30),
    kind="zeroed",
    phase="forward",
    module="0",
    op="aten.div.Tensor_mode",
    sample=None,
)


case(
    "constant_sequence_normalised",
    lambda: nn.Sequential(nn.InstanceNorm1d(3), nn.Flatten(), nn.Linear(18, 2, bias=False)),
    lambda g, bad: (
        torch.ones(4, 3, 6) * torch.rand(4, 3, 1, generator=g)
        if bad
        else torch.randn(4, 3, 6, generator=g)
    ),
    kind="zeroed",
    phase="forward",
    module="0",
    op="aten.native_batch_norm.default",
    sample=None,
)


class LastToken(nn.Module):
    """Reads the last position, which is padding in the failing batch."""

    def forward(self, x):
        return x[:, -1] * 2


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.pad = nn.ZeroPad1d((0, 1))
        self.last, self.head = LastToken(), nn.Linear(6, 2, bias=False)

    def forward(self, x, padded):
        x = torch.tanh(x)
        if padded:
            x = self.pad(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.last(x))


case(
    "view_shows_the_zero_part",
    Reader,
    lambda g, bad: (torch.randn(4, 5, 6, generator=g), bad),
    kind="zeroed",
    phase="forward",
    module="last",
    op="aten.select.int",
    sample=None,
)
