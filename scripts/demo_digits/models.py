"""The networks of the demo: a stranger's own code, with three planted bugs.

Shape letters: B = batch, T = columns of ink, D = features, H W = pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BlockAttention(nn.Module):
    """Pool a sequence with one learned query, looking at whole blocks of columns only.

    Planted bug: `//` drops the block that is not full. A sequence shorter than one block has
    no column left to look at, every weight is zero and so is the output; nothing crashes.
    """

    def __init__(self, features: int, block: int = 4) -> None:
        """Pool `features` wide columns in blocks of `block`."""
        super().__init__()
        self.block = block
        self.score = nn.Linear(features, 1)

    def forward(self, columns: Tensor, lengths: Tensor) -> Tensor:
        """Return (B, D) from columns (B, T, D) and the number of real columns (B,)."""
        scores = self.score(columns).squeeze(-1)
        whole = lengths // self.block * self.block
        inside = torch.arange(columns.shape[1], device=columns.device) < whole[:, None]
        weights = torch.exp(scores - scores.amax(1, keepdim=True)) * inside
        weights = weights / (weights.sum(1, keepdim=True) + 1e-6)
        return torch.einsum("bt,btd->bd", weights, columns)


class ColumnReader(nn.Module):
    """Read a digit column by column: an embedding, pooled by attention, then a classifier."""

    def __init__(self) -> None:
        """Make the layers for columns of 8 pixels and 10 classes."""
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(9, 512), nn.Tanh(), nn.Linear(512, 256), nn.Tanh())
        self.attention = BlockAttention(256)
        self.classify = nn.Linear(256, 10, bias=False)

    def forward(self, columns: Tensor, lengths: Tensor) -> Tensor:
        """Return logits (B, 10) from columns (B, T, 9) and lengths (B,)."""
        logits: Tensor = self.classify(self.attention(self.embed(columns), lengths))
        return logits


class RandomCrop(nn.Module):
    """Cut a random window out of each image; in training only, else the centre."""

    def __init__(self, size: int) -> None:
        """Cut windows of `size` by `size` pixels."""
        super().__init__()
        self.size = size

    def forward(self, images: Tensor) -> Tensor:
        """Return (B, size, size) from images (B, H, W)."""
        room = images.shape[1] - self.size + 1
        corner = torch.full((len(images), 2), room // 2)
        if self.training:
            corner = torch.randint(0, room, (len(images), 2))
        steps = torch.arange(self.size)
        rows = (corner[:, :1] + steps)[:, :, None]
        columns = (corner[:, 1:] + steps)[:, None, :]
        return images[torch.arange(len(images))[:, None, None], rows, columns]


class Standardise(nn.Module):
    """Give each image mean 0 and standard deviation 1.

    Planted bug: blank paper has standard deviation 0, and 0/0 is NaN.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return images (B, H, W), standardised one by one."""
        mean = images.mean((1, 2), keepdim=True)
        std = images.std((1, 2), keepdim=True)
        return (images - mean) / std


class CropNet(nn.Module):
    """Recognise a digit by a small piece of it."""

    def __init__(self) -> None:
        """Make the layers for crops of 4 by 4 pixels and 10 classes."""
        super().__init__()
        self.crop = RandomCrop(4)
        self.standardise = Standardise()
        self.features = nn.Sequential(
            nn.Conv2d(1, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, padding=1),
            nn.ReLU(),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(2048, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, 10) from images (B, H, W)."""
        crops = self.standardise(self.crop(images))
        logits: Tensor = self.classify(self.features(crops[:, None]))
        return logits


class Blend(nn.Module):
    """Add two streams so that the variance stays: sqrt(1 - share) * a + sqrt(share) * b.

    Planted bug: training drives a share down to 0. Its forward is fine there, but the slope of
    a square root at 0 is infinite.
    """

    def __init__(self, features: int) -> None:
        """Start with a fifth of the second stream in each of `features` channels."""
        super().__init__()
        self.share = nn.Parameter(torch.full((features,), 0.2))

    def forward(self, main: Tensor, side: Tensor) -> Tensor:
        """Return (B, D) from two streams of (B, D)."""
        return torch.sqrt(1 - self.share) * main + torch.sqrt(self.share) * side

    @torch.no_grad()
    def project(self) -> None:
        """Bring the shares back into [0, 0.99] after an update."""
        self.share.clamp_(0, 0.99)


def _stream(inputs: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, 1024),
        nn.Tanh(),
        nn.Linear(1024, 128),
        nn.Tanh(),
        nn.Dropout(dropout),
    )


class TwoStreams(nn.Module):
    """Blend what the pixels say with what their edges say, then classify."""

    def __init__(self) -> None:
        """Make the layers for images of 8 by 8 pixels and 10 classes."""
        super().__init__()
        self.pixels = _stream(64, dropout=0.0)
        self.edges = _stream(56, dropout=0.5)
        self.blend = Blend(128)
        self.classify = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, 10) from images (B, H, W)."""
        slopes = images[:, 1:] - images[:, :-1]
        logits: Tensor = self.classify(self.blend(self.pixels(images), self.edges(slopes)))
        return logits
