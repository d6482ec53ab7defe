"""The four networks whose training is timed; plain code, random data.

Shape letters: B = batch, T = tokens, D = features, V = words, C = channels, H W = pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu, scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable


class Block(nn.Module):
    """A transformer block: attention, then two linear layers, each with a residual."""

    def __init__(self, features: int, heads: int) -> None:
        """Make the layers for `features` wide tokens."""
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.up, self.down = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)
        self.act = nn.GELU()

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return (B, T, D)."""
        B, T, D = x_BTD.shape
        qkv = self.qkv(self.norm1(x_BTD)).view(B, T, 3, self.heads, D // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x_BTD = x_BTD + self.out(mixed.transpose(1, 2).reshape(B, T, D))
        thought: Tensor = self.down(self.act(self.up(self.norm2(x_BTD))))
        return x_BTD + thought


class Transformer(nn.Module):
    """A causal language model."""

    def __init__(self, words: int, tokens: int, features: int, heads: int, layers: int) -> None:
        """Make `layers` blocks between an embedding and a classifier over `words`."""
        super().__init__()
        self.words, self.places = nn.Embedding(words, features), nn.Embedding(tokens, features)
        self.blocks = nn.ModuleList([Block(features, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(features), nn.Linear(features, words, bias=False)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Return logits (B, V, T)."""
        x_BTD = self.words(ids_BT) + self.places.weight[: ids_BT.shape[1]]
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits: Tensor = self.head(self.norm(x_BTD))
        return logits.transpose(1, 2)


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm and a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        """Go from `before` to `after` channels."""
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return (B, C, H, W)."""
        y_BCHW = self.norm2(self.conv2(relu(self.norm1(self.conv1(x_BCHW)))))
        return relu(y_BCHW + self.shortcut(x_BCHW))


def resnet18(classes: int = 100) -> nn.Module:
    """Return the layers of ResNet-18, 11.2M parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    before = 64
    for after in (64, 128, 256, 512):
        layers += [Residual(before, after, 1 if after == before else 2), Residual(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Lstm(nn.Module):
    """Embedding, two layers of LSTM, classifier at every token."""

    def __init__(self, words: int, features: int) -> None:
        """Make layers of `features` for `words`."""
        super().__init__()
        self.words = nn.Embedding(words, features)
        self.rnn = nn.LSTM(features, features, num_layers=2, batch_first=True)
        self.head = nn.Linear(features, words)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Return logits (B, V, T)."""
        logits: Tensor = self.head(self.rnn(self.words(ids_BT))[0])
        return logits.transpose(1, 2)


Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A network in training."""

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    """Inputs and targets, drawn from the global generator."""

    steps: int
    """Steps in a block that is timed as one, about a second of work."""

    goal: float
    """Most that the recorder may cost, as a ratio."""


def _text(batch: int, tokens: int, words: int) -> Callable[[], Batch]:
    def draw() -> Batch:
        ids_BT = torch.randint(words, (batch, tokens + 1))
        return ids_BT[:, :-1].contiguous(), ids_BT[:, 1:].contiguous()

    return draw


def _pictures() -> Batch:
    return torch.randn(8, 3, 64, 64), torch.randint(100, (8,))


def _large() -> nn.Module:
    return Transformer(words=8000, tokens=128, features=512, heads=8, layers=8)


def _small() -> nn.Module:
    return Transformer(words=65, tokens=64, features=96, heads=4, layers=4)


WORKLOADS = (
    Workload(
        name="transformer-33M-8x128",
        model=_large,
        batch=_text(8, 128, 8000),
        steps=2,
        goal=1.02,
    ),
    Workload(
        name="transformer-33M-2x128",
        model=_large,
        batch=_text(2, 128, 8000),
        steps=4,
        goal=1.03,
    ),
    Workload(name="resnet18-8x64x64", model=resnet18, batch=_pictures, steps=6, goal=1.02),
    Workload(
        name="lstm-4M-16x64",
        model=lambda: Lstm(1000, 400),
        batch=_text(16, 64, 1000),
        steps=6,
        goal=1.02,
    ),
    Workload(
        name="gpt-460K-8x64",
        model=_small,
        batch=_text(8, 64, 65),
        steps=40,
        goal=1.05,
    ),
)


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """Return the cross entropy of a batch."""
    return cross_entropy(model(batch[0]), batch[1])
