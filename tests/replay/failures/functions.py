"""Functions that leave their domain or their range in the forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from tests.replay.failures.base import Part, Wrapped, case, direct, masked, positive, rows, value

# An infinity becomes a NaN in the layer that follows, where terms of both signs meet.
for name, function, bad, op in (
    ("log_of_negative", torch.log, -1.0, "aten.log.default"),
    ("log_of_zero", torch.log, 0.0, "aten.log.default"),
    ("sqrt_of_negative", torch.sqrt, -1.0, "aten.sqrt.default"),
    ("acos_beyond_one", torch.acos, 1.5, "aten.acos.default"),
    ("atanh_at_one", torch.atanh, 1.0, "aten.atanh.default"),
    ("pow_of_zero", lambda x: x.pow(-2), 0.0, "aten.pow.Tensor_Scalar"),
    ("pow_of_negative", lambda x: x.pow(0.5 + 0.25), -1.0, "aten.pow.Tensor_Scalar"),
    ("exp_overflow", torch.exp, 100.0, "aten.exp.default"),
    ("reciprocal_of_zero", lambda x: 1 / x, 0.0, "aten.reciprocal.default"),
    ("rsqrt_of_zero", torch.rsqrt, 0.0, "aten.rsqrt.default"),
    ("zero_by_zero_cosine", lambda x: x / x.norm(dim=-1, keepdim=True), 0.0, "aten.div.Tensor"),
    (
        "scaled_by_std_of_constant",
        lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True),
        0.5,
        "aten.div.Tensor",
    ),
    ("logit_at_one", torch.logit, 1.0, "aten.logit.default"),
    ("erfinv_at_one", torch.erfinv, 1.0, "aten.erfinv.default"),
    ("lgamma_at_zero", torch.lgamma, 0.0, "aten.lgamma.default"),
    ("fmod_by_zero", lambda x: torch.fmod(torch.ones_like(x), x), 0.0, "aten.fmod.Tensor"),
    ("square_overflow", lambda x: x * x, 1e25, "aten.mul.Tensor"),
    ("cast_to_half_overflow", lambda x: (x.half() + 0.0).float(), 1e6, "aten._to_copy.default"),
    ("cosh_overflow", torch.cosh, 100.0, "aten.cosh.default"),
):
    truth = {"kind": "nan", "phase": "forward", "module": "part", "op": op, "sample": 5}
    case(name, direct(function), positive(bad), **truth)


case(
    "handmade_softmax_without_shift",
    direct(lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
    value(100.0),
    kind="nan",
    phase="forward",
    module="part",
    op="aten.exp.default",
    sample=5,
)


case(
    "entropy_by_hand",
    direct(lambda x: x * x.log()),
    positive(0.0),
    kind="nan",
    phase="forward",
    module="part",
    op="aten.log.default",
    sample=5,
)


case(
    "variance_by_difference",
    direct(
        lambda x: x * ((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2 - 1e-9).sqrt()
    ),
    positive(0.5),
    kind="nan",
    phase="forward",
    module="part",
    op="aten.sqrt.default",
    sample=5,
)


class Spectrum(nn.Module):
    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        return torch.fft.irfft(spectrum / spectrum.abs(), n=x.shape[-1])


class Whitened(nn.Module):
    def __init__(self):
        super().__init__()
        self.white, self.head = Spectrum(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.white(x))


case(
    "complex_division_by_zero",
    Whitened,
    value(0.0),
    kind="nan",
    phase="forward",
    module="white",
    op="aten.div.Tensor",
    sample=5,
)


case(
    "vmapped_normalisation",
    direct(lambda x: torch.vmap(lambda row: row / row.norm())(x)),
    value(0.0),
    kind="nan",
    phase="forward",
    module="part",
    op="aten.div.Tensor",
    sample=5,
)


class EmptyMean(nn.Module):
    def forward(self, x, keep):
        return torch.stack([row[flag].mean(0) for row, flag in zip(x, keep, strict=True)])


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pool, self.head = nn.Linear(6, 6), EmptyMean(), nn.Linear(6, 2)

    def forward(self, x, keep):
        return self.head(self.pool(self.embed(x), keep))


case(
    "mean_of_nothing",
    Pooled,
    masked,
    kind="nan",
    phase="forward",
    module="pool",
    op="aten.mean.dim",
    sample=2,
)


class OneStd(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)) / (x.std(0) + 1e-6)


class Standardised(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = OneStd(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.norm(x))


case(
    "std_of_one_sample",
    Standardised,
    lambda g, bad: torch.randn(1 if bad else 4, 6, generator=g),
    kind="nan",
    phase="forward",
    module="norm",
    op="aten.std.correction",
    sample=None,
)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(6, 6, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0].pow(2).sum(1))


def burst(generator, bad):
    x = torch.randn(4, 5, 6, generator=generator)
    if bad:
        x[2, 1] = 1e30
    return x


case(
    "rnn_output_overflows",
    Recurrent,
    burst,
    kind="nan",
    phase="forward",
    module="",
    op="aten.pow.Tensor_Scalar",
    sample=2,
)


class LogSumExp(nn.Module):
    def forward(self, x, keep):
        return torch.logsumexp(x.masked_fill(~keep[..., None], float("-inf")), 1)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.pool, self.last = nn.Linear(6, 6), LogSumExp(), nn.Linear(6, 2)

    def forward(self, x, keep):
        return self.last(self.pool(self.first(x), keep))


case(
    "log_sum_exp_of_nothing",
    Mixture,
    masked,
    kind="nan",
    phase="forward",
    module="last",
    op="aten.addmm.default",
    sample=2,
)


def zero_row():
    model = Wrapped(torch.nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)))
    with torch.no_grad():
        model.part.parametrizations.weight.original1[2] = 0.0
    return model


case(
    "weight_norm_of_a_zero_row",
    zero_row,
    value(None),
    training=False,
    kind="nan",
    phase="forward",
    module="part.parametrizations.weight.0",
    op="aten._weight_norm_interface.default",
    sample=None,
)


@dataclass
class Result:
    logits: torch.Tensor
    extra: dict


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.loss = Part(lambda x: x.softmax(-1)[:, :2].log())

    def forward(self, x):
        h = self.body(x)
        return Result(logits=h, extra={"logp": [self.loss(h * 0 + x)]})


case(
    "log_of_underflowed_softmax",
    Structured,
    lambda g, bad: torch.cat(
        [
            rows(g, False)[:5],
            torch.tensor([[0.0, 0, 0, 0, 0, 300.0 if bad else 1.0]]),
            rows(g, False)[:2],
        ]
    ),
    loss=lambda model, x: model(x).extra["logp"][0].mean(),
    kind="inf",
    phase="forward",
    module="loss",
    op="aten.log.default",
    sample=5,
)


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            h = self.first(x)
        return self.last(h.float().softmax(-1))


case(
    "autocast_linear_overflows",
    Autocast,
    value(2e5),
    kind="nan",
    phase="forward",
    module="first",
    op="aten._to_copy.default",
    sample=5,
)
