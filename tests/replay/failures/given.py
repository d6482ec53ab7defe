"""Weights, buffers and batches that are bad before the step begins."""

from __future__ import annotations

import torch
from torch import nn

from tests.replay.failures.base import Wrapped, case, rows, value


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.body = nn.Linear(6, 6)
        self.decoder = nn.Linear(6, 10, bias=False)
        self.decoder.weight = self.embed.weight

    def forward(self, ids):
        return self.decoder(torch.tanh(self.body(self.embed(ids))))


def tied_with_nan():
    model = Tied()
    with torch.no_grad():
        model.embed.weight[9, 1] = float("nan")
    return model


case(
    "nan_in_tied_weight",
    tied_with_nan,
    lambda g, bad: torch.randint(0, 9, (4, 3), generator=g),
    training=False,
    kind="nan",
    phase="parameter",
    module="embed",
    op=None,
    sample=None,
)


def nan_weight():
    model = Wrapped(nn.Sequential(nn.Linear(6, 6), nn.ReLU()))
    with torch.no_grad():
        model.part[0].weight[2, 3] = float("nan")
    return model


case(
    "nan_in_weight",
    nan_weight,
    value(None),
    training=False,
    kind="nan",
    phase="parameter",
    module="part.0",
    op=None,
    sample=None,
)


def zero_layer():
    model = Wrapped(nn.LayerNorm(6))
    with torch.no_grad():
        for each in (*model.part.parameters(), model.last.bias):
            each.zero_()
    return model


case(
    "zeroed_layer",
    zero_layer,
    value(None),
    training=False,
    kind="zeroed",
    phase="parameter",
    module="part",
    op=None,
    sample=None,
)


def bad_buffer():
    model = Wrapped(nn.BatchNorm1d(6))
    model.part.running_var[1] = float("inf")
    model.part.running_mean[3] = float("nan")
    return model.eval()


case(
    "nan_in_running_mean",
    bad_buffer,
    value(None),
    training=False,
    kind="nan",
    phase="parameter",
    module="part",
    op=None,
    sample=None,
)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Wrapped(nn.Tanh())

    def forward(self, batch):
        return {"out": self.body(batch["features"]["x"]), "aux": batch["features"]["x"].mean(-1)}


def nested(generator, bad):
    return {"features": {"x": rows(generator, bad, value=float("inf"), row=6)}, "name": "batch"}


case(
    "infinity_in_nested_batch",
    Nested,
    nested,
    loss=lambda model, batch: model(batch)["out"].pow(2).mean(),
    kind="nan",
    phase="data",
    module=None,
    op=None,
    sample=6,
)


class WithTarget(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.criterion = nn.Linear(6, 1), nn.SmoothL1Loss()

    def forward(self, x, y):
        return self.criterion(self.body(x)[:, 0], y)


def labelled(generator, bad):
    x, y = torch.randn(8, 6, generator=generator), torch.randn(8, generator=generator)
    if bad:
        y[7] = float("nan")
    return x, y


case(
    "nan_label_in_the_batch",
    WithTarget,
    labelled,
    loss=lambda model, batch: model(*batch),
    kind="nan",
    phase="data",
    module=None,
    op=None,
    sample=7,
)


case(
    "input_is_blank",
    lambda: nn.Sequential(nn.Linear(6, 6, bias=False), nn.Tanh()),
    lambda g, bad: torch.zeros(4, 6) if bad else torch.randn(4, 6, generator=g),
    kind="zeroed",
    phase="data",
    module=None,
    op=None,
    sample=None,
)
