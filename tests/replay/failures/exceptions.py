"""Steps that end with an exception."""

from __future__ import annotations

import torch
from torch import nn

from tests.replay.failures.base import Wrapped, case, value


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 6), nn.Linear(6, 2)

    def forward(self, ids):
        return self.head(self.table(ids))


def ids(generator, bad):
    found = torch.randint(0, 10, (6, 3), generator=generator)
    if bad:
        found[4, 1] = 10
    return found


case(
    "index_out_of_range",
    Lookup,
    ids,
    kind="exception",
    phase="forward",
    module="table",
    op="aten.embedding.default",
    sample=4,
)


case(
    "shape_mismatch",
    lambda: Wrapped(nn.Identity()),
    lambda g, bad: torch.randn(4, 7 if bad else 6, generator=g),
    kind="exception",
    phase="forward",
    module="first",
    op="aten.addmm.default",
    sample=None,
)


class Picky(nn.Module):
    def forward(self, x):
        if x.max() > 50:
            raise ValueError("values above 50 are not expected")
        return x


case(
    "exception_in_python_code",
    lambda: Wrapped(Picky()),
    value(1000.0),
    kind="exception",
    phase="forward",
    module="part",
    op=None,
    sample=5,
)


class Forgiving(nn.Module):
    """Catches an exception of its own on the way; the later one is the failure."""

    def __init__(self):
        super().__init__()
        self.lookup, self.last = nn.Embedding(3, 6), nn.Linear(6, 6)

    def forward(self, x):
        try:
            x = x + self.lookup(torch.tensor([7]))
        except IndexError:
            x = x + 1
        return x.view(-1, 5) if float(x.detach().max()) > 50 else x


case(
    "exception_after_a_caught_one",
    lambda: Wrapped(Forgiving()),
    value(1000.0),
    kind="exception",
    phase="forward",
    module="part",
    op="aten.view.default",
    sample=5,
)


case(
    "batch_norm_of_one_value",
    lambda: Wrapped(nn.BatchNorm1d(6)),
    lambda g, bad: torch.randn(1 if bad else 4, 6, generator=g),
    kind="exception",
    phase="forward",
    module="part",
    op=None,
    sample=None,
)
