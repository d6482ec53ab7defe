"""The 1,797 handwritten digits that ship inside scikit-learn, as batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it has none
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

# Shape letters: N = digits, B = batch, T = columns of ink, H W = 8 x 8 pixels.

BATCH = 32


def digits() -> tuple[Tensor, Tensor]:
    """Return images (N, H, W), float32 in [0, 1], and labels (N,), int64."""
    found = load_digits()
    images_NHW = torch.tensor(found.images, dtype=torch.float32) / 16
    return images_NHW, torch.tensor(found.target, dtype=torch.int64)


def random_batches(steps: int, seed: int) -> Iterator[tuple[tuple[Tensor], Tensor]]:
    """Yield ((images (B, H, W),), labels (B,)), drawn with replacement."""
    images_NHW, labels_N = digits()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows_B = torch.randint(len(labels_N), (BATCH,), generator=generator)
        yield (images_NHW[rows_B],), labels_N[rows_B]


def bucketed_batches(seed: int) -> Iterator[tuple[tuple[Tensor, Tensor], Tensor]]:
    """Yield ((columns (B, T, 9), lengths (B,)), labels (B,)), sequences of like length together.

    A digit is read as the columns that the pen crossed: 8 pixels and the column's place.
    """
    images_NHW, labels_N = digits()
    place_W = torch.linspace(-1, 1, 8)
    sequences = []
    for image in images_NHW:
        inked_W = image.amax(0) > 0.5
        sequences.append(torch.cat([image.T, place_W[:, None]], 1)[inked_W])
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    buckets = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    generator = torch.Generator().manual_seed(seed)
    for number in torch.randperm(len(buckets), generator=generator).tolist():
        rows = buckets[number]
        columns_BTK = pad_sequence([sequences[row] for row in rows], batch_first=True)
        lengths_B = torch.tensor([len(sequences[row]) for row in rows])
        yield (columns_BTK, lengths_B), labels_N[rows]
