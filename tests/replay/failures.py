"""Small failures with known culprits: three healthy steps, then one that goes wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

FAILING = 3


@dataclass
class Case:
    """A training loop in the shape of the quality cases."""

    name: str
    model: Any
    data: Any
    """`data(generator, bad)` returns one batch."""

    loss: Any = None
    truth: dict = field(default_factory=dict)
    kind: str | None = None
    """Kind of the incident, where it is not that of the truth."""

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


def case(name, model, data, *, loss=None, kind=None, training=True, **truth):
    CASES.append(
        Case(name=name, model=model, data=data, loss=loss, truth=truth, kind=kind, training=training)
    )


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


# -- forward: one function that leaves its domain -------------------------------------------

for name, function, bad, op, kind in (
    ("log_of_negative", torch.log, -1.0, "aten.log.default", "nan"),
    ("log_of_zero", torch.log, 0.0, "aten.log.default", "inf"),
    ("sqrt_of_negative", torch.sqrt, -1.0, "aten.sqrt.default", "nan"),
    ("acos_beyond_one", torch.acos, 1.5, "aten.acos.default", "nan"),
    ("atanh_at_one", torch.atanh, 1.0, "aten.atanh.default", "inf"),
    ("pow_of_zero", lambda x: x.pow(-2), 0.0, "aten.pow.Tensor_Scalar", "inf"),
    ("pow_of_negative", lambda x: x.pow(0.5 + 0.25), -1.0, "aten.pow.Tensor_Scalar", "nan"),
    ("exp_overflow", torch.exp, 100.0, "aten.exp.default", "inf"),
    ("reciprocal_of_zero", lambda x: 1 / x, 0.0, "aten.reciprocal.default", "inf"),
    ("rsqrt_of_zero", torch.rsqrt, 0.0, "aten.rsqrt.default", "inf"),
    ("zero_by_zero_cosine", lambda x: x / x.norm(dim=-1, keepdim=True), 0.0, "aten.div.Tensor", "nan"),
    ("scaled_by_std_of_constant", lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True), 0.5, "aten.div.Tensor", "nan"),
    ("logit_at_one", torch.logit, 1.0, "aten.logit.default", "inf"),
    ("erfinv_at_one", torch.erfinv, 1.0, "aten.erfinv.default", "inf"),
    ("lgamma_at_zero", torch.lgamma, 0.0, "aten.lgamma.default", "inf"),
    ("fmod_by_zero", lambda x: torch.fmod(torch.ones_like(x), x), 0.0, "aten.fmod.Tensor", "nan"),
    ("square_overflow", lambda x: x * x, 1e25, "aten.mul.Tensor", "inf"),
    ("cast_to_half_overflow", lambda x: (x.half() + 0.0).float(), 1e6, "aten._to_copy.default", "inf"),
    ("cosh_overflow", torch.cosh, 100.0, "aten.cosh.default", "inf"),
):
    truth = {"kind": kind, "phase": "forward", "module": "part", "op": op, "sample": 5}
    case(name, direct(function), positive(bad), **truth)


case(
    "handmade_softmax_without_shift",
    direct(lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
    value(100.0),
    kind="nan", phase="forward", module="part", op="aten.exp.default", sample=5,
)
class Attention(nn.Module):
    def __init__(self, mask_value=float("-inf"), dtype=torch.float32, scale=1.0):
        super().__init__()
        self.qkv = nn.Linear(6, 18)
        self.mask_value, self.dtype, self.scale = mask_value, dtype, scale

    def forward(self, x, keep):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(1, 2)).to(self.dtype) * self.scale
        scores = scores.masked_fill(~keep[:, None, :], self.mask_value)
        return scores.softmax(-1).float() @ v


class AttentionNet(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.layers = nn.ModuleList([Attention(**options) for _ in range(2)])
        self.head = nn.Linear(6, 2)

    def forward(self, x, keep):
        for layer in self.layers:
            x = x + layer(x, keep)
        return self.head(x)


def masked(generator, bad):
    keep = torch.ones(4, 5, dtype=torch.bool)
    for row in range(4):
        keep[row, int(torch.randint(2, 6, (1,), generator=generator)) :] = False
    if bad:
        keep[2] = False
    return torch.randn(4, 5, 6, generator=generator), keep


case("softmax_of_masked_row", AttentionNet, masked,
     kind="nan", phase="forward", module="layers.0", op="aten._softmax.default", sample=2)


class BiasAttention(nn.Module):
    """Mask added as -inf, twice."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6, 18)
        self.register_buffer("causal", torch.full((5, 5), float("-inf")).triu(1))

    def forward(self, x, keep):
        q, k, v = self.qkv(x).chunk(3, -1)
        bias = torch.zeros(keep.shape).masked_fill(~keep, float("-inf"))
        scores = q @ k.transpose(1, 2) + self.causal + bias[:, None]
        return scores.softmax(-1) @ v


class BiasNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.head = BiasAttention(), nn.Linear(6, 2)

    def forward(self, x, keep):
        return self.head(x + self.attn(x, keep))


def left_padded(generator, bad):
    x, keep = torch.randn(4, 5, 6, generator=generator), torch.ones(4, 5, dtype=torch.bool)
    if bad:
        keep[1, 0] = False
    return x, keep


case("causal_mask_meets_left_padding", BiasNet, left_padded,
     kind="nan", phase="forward", module="attn", op="aten._softmax.default", sample=1)


class HalfScores(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(6, 6).half(), nn.Linear(6, 6).half()
        self.v = nn.Linear(6, 6)

    def forward(self, x):
        q, k = self.q(x.half()), self.k(x.half())
        scores = torch.bmm(q, k.transpose(1, 2))
        return scores.float().softmax(-1) @ self.v(x)


class HalfNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.head = HalfScores(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.attn(x))


def loud(generator, bad):
    x = torch.randn(4, 5, 6, generator=generator)
    if bad:
        x[3] *= 3000
    return x


case("half_overflow_in_attention_scores", HalfNet, loud,
     kind="nan", phase="forward", module="attn", op="aten.bmm.default", sample=3)

class EmptyMean(nn.Module):
    def forward(self, x, keep):
        return torch.stack([row[flag].mean(0) for row, flag in zip(x, keep)])


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pool, self.head = nn.Linear(6, 6), EmptyMean(), nn.Linear(6, 2)

    def forward(self, x, keep):
        return self.head(self.pool(self.embed(x), keep))


case("mean_of_nothing", Pooled, masked,
     kind="nan", phase="forward", module="pool", op="aten.mean.dim", sample=2)


class OneStd(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)) / (x.std(0) + 1e-6)


class Standardised(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = OneStd(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.norm(x))


case("std_of_one_sample", Standardised,
     lambda g, bad: torch.randn(1 if bad else 4, 6, generator=g),
     kind="nan", phase="forward", module="norm", op="aten.std.correction", sample=None)


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


case("rnn_output_overflows", Recurrent, burst,
     kind="nan", phase="forward", module="", op="aten.pow.Tensor_Scalar", sample=2)


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


case("complex_division_by_zero", Whitened, value(0.0),
     kind="nan", phase="forward", module="white", op="aten.div.Tensor", sample=5)


class InPlaceView(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 2:4].div_(x[:, :1])
        return y


class Sliced(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.head = InPlaceView(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.scale(x))


case("in_place_on_a_view", Sliced, value(0.0),
     kind="nan", phase="forward", module="scale", op="aten.div_.Tensor", sample=5)


class Scatter(nn.Module):
    """Rows are written one by one into memory that was allocated empty."""

    def forward(self, x):
        out = torch.empty_like(x)
        for row in range(x.shape[0]):
            out[row] = x[row].log()
        return out


class Filled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fill, self.head = Scatter(), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.fill(x))


case("rows_written_into_empty_memory", Filled, positive(-1.0),
     kind="nan", phase="forward", module="fill", op="aten.log.default", sample=5)


class Buggy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs().sqrt()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.sign() / (2 * x.abs().sqrt())


class CustomFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.part, self.head = nn.Linear(6, 6, bias=False), Part(Buggy.apply), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.part(self.first(x)))


case("custom_function_backward", CustomFunction, value(0.0),
     kind="nan", phase="backward", module="part", op="aten.div.Tensor", backward_of="aten.sqrt.default", sample=5)


class LogFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * 2).log() + 1

    @staticmethod
    def backward(ctx, grad):
        return grad / ctx.saved_tensors[0]


case("custom_function_forward", direct(LogFunction.apply), positive(-1.0),
     kind="nan", phase="forward", module="part", op="aten.log.default", sample=5)


# -- backward --------------------------------------------------------------------------------

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


for name, function, bad, op, of in (
    ("sqrt_backward", lambda x: x.pow(2).sum(-1, keepdim=True).sqrt() * torch.ones(6), 0.0, "aten.div.Tensor", "aten.sqrt.default"),
    ("where_hides_log", lambda x: torch.where(x > 0, x.clamp(min=0).log(), torch.zeros_like(x)), 0.0, "aten.div.Tensor", "aten.log.default"),
    ("where_hides_division", lambda x: torch.where(x == 0, torch.zeros_like(x), 1 / x), 0.0, "aten.mul.Tensor", "aten.reciprocal.default"),
    ("pow_backward", lambda x: x.abs().pow(0.5), 0.0, "aten.pow.Tensor_Scalar", "aten.pow.Tensor_Scalar"),
):
    case(name, after_layer(function), value(bad), kind="nan", phase="backward", module="part", op=op, backward_of=of, sample=5)


case("norm_of_quotient_backward",
     after_layer(lambda x: x / (torch.sqrt((x * x).sum(-1, keepdim=True)) + 1e-8)), value(0.0),
     kind="nan", phase="backward", module="part", op="aten.div.Tensor", backward_of="aten.sqrt.default", sample=5)


class Acos(nn.Module):
    def forward(self, a, b):
        cosine = F.cosine_similarity(a, b).clamp(-1.0, 1.0)
        return torch.acos(cosine)


class Angles(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.angle = nn.Linear(6, 6), Acos()

    def forward(self, a, b):
        return self.angle(self.embed(a), self.embed(b))


def twins(generator, bad):
    a, b = torch.randn(8, 6, generator=generator), torch.randn(8, 6, generator=generator)
    if bad:
        a[4] = torch.tensor([1.0, 0, 0, 0, 0, 0])
        b[4] = a[4]
    return a, b


case("acos_backward_at_one", Angles, twins,
     kind="nan", phase="backward", module="angle", op="aten.rsqrt.default", backward_of="aten.acos.default", sample=4)

# -- parameters, data, zeros, exceptions -----------------------------------------------------

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


case("nan_in_tied_weight", tied_with_nan,
     lambda g, bad: torch.randint(0, 9, (4, 3), generator=g), training=False,
     kind="nan", phase="parameter", module="embed", op=None, sample=None)


def nan_weight():
    model = Wrapped(nn.Sequential(nn.Linear(6, 6), nn.ReLU()))
    with torch.no_grad():
        model.part[0].weight[2, 3] = float("nan")
    return model


case("nan_in_weight", nan_weight, value(None), training=False,
     kind="nan", phase="parameter", module="part.0", op=None, sample=None)


def zero_layer():
    model = Wrapped(nn.LayerNorm(6))
    with torch.no_grad():
        for each in (*model.part.parameters(), model.last.bias):
            each.zero_()
    return model


case("zeroed_layer", zero_layer, value(None), training=False,
     kind="zeroed", phase="parameter", module="part", op=None, sample=None)


def bad_buffer():
    model = Wrapped(nn.BatchNorm1d(6))
    model.part.running_var[1] = float("inf")
    model.part.running_mean[3] = float("nan")
    return model.eval()


case("nan_in_running_mean", bad_buffer, value(None), training=False,
     kind="nan", phase="parameter", module="part", op=None, sample=None)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Wrapped(nn.Tanh())

    def forward(self, batch):
        return {"out": self.body(batch["features"]["x"]), "aux": batch["features"]["x"].mean(-1)}


def nested(generator, bad):
    return {"features": {"x": rows(generator, bad, value=float("inf"), row=6)}, "name": "batch"}


case("infinity_in_nested_batch", Nested, nested,
     loss=lambda model, batch: model(batch)["out"].pow(2).mean(),
     kind="nan", phase="data", module=None, op=None, sample=6)


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


case("dead_relu", dead, lambda g, bad: torch.rand(8, 6, generator=g) + (0.1 if bad else -9.0),
     kind="zeroed", phase="forward", module="head.1", op="aten.relu.default", sample=None)


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


case("attention_weights_all_zero", Blank,
     lambda g, bad: torch.randn(4, 1 if bad else 7, 6, generator=g) * 0.1,
     kind="zeroed", phase="forward", module="attention", op="aten.where.self", sample=None)


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


case("overflow_behind_a_zero", Vanishing,
     lambda g, bad: torch.randn(4, 6, generator=g) * (1e30 if bad else 1.0),
     kind="zeroed", phase="forward", module="norm", op="aten.pow.Tensor_Scalar", sample=None)


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


case("index_out_of_range", Lookup, ids,
     kind="exception", phase="forward", module="table", op="aten.embedding.default", sample=4)

case("shape_mismatch", lambda: Wrapped(nn.Identity()),
     lambda g, bad: torch.randn(4, 7 if bad else 6, generator=g),
     kind="exception", phase="forward", module="first", op="aten.addmm.default", sample=None)


class Picky(nn.Module):
    def forward(self, x):
        if x.max() > 50:
            raise ValueError("values above 50 are not expected")
        return x


case("exception_in_python_code", lambda: Wrapped(Picky()), value(1000.0),
     kind="exception", phase="forward", module="part", op=None, sample=5)


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


case("exception_after_a_caught_one", lambda: Wrapped(Forgiving()), value(1000.0),
     kind="exception", phase="forward", module="part", op="aten.view.default", sample=5)


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.unit = Part(lambda x: x.sqrt())
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        a = self.unit(x.abs())
        b = self.unit(x.abs() + 1)
        return self.last(a + b + self.unit(x))


case("third_call_of_a_shared_module", Reused, positive(-9.0),
     kind="nan", phase="forward", module="unit", op="aten.sqrt.default", sample=5, call=2)


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


case("log_of_underflowed_softmax", Structured,
     lambda g, bad: torch.cat([rows(g, False)[:5], torch.tensor([[0.0, 0, 0, 0, 0, 300.0 if bad else 1.0]]), rows(g, False)[:2]]),
     loss=lambda model, x: model(x).extra["logp"][0].mean(),
     kind="inf", phase="forward", module="loss", op="aten.log.default", sample=5)


# -- more of the same kinds, further apart ---------------------------------------------------

case("manual_sigmoid_backward",
     after_layer(lambda x: 1 / (1 + torch.exp(-x))), value(-400.0),
     kind="nan", phase="backward", module="part", op="aten.mul.Tensor", sample=5)

case("entropy_by_hand", direct(lambda x: x * x.log()), positive(0.0),
     kind="nan", phase="forward", module="part", op="aten.log.default", sample=5)

case("variance_by_difference",
     direct(lambda x: (x * ((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2 - 1e-9).sqrt())),
     positive(0.5), kind="nan", phase="forward", module="part", op="aten.sqrt.default", sample=5)


class LogSumExp(nn.Module):
    def forward(self, x, keep):
        return torch.logsumexp(x.masked_fill(~keep[..., None], float("-inf")), 1)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.pool, self.last = nn.Linear(6, 6), LogSumExp(), nn.Linear(6, 2)

    def forward(self, x, keep):
        return self.last(self.pool(self.first(x), keep))


case("log_sum_exp_of_nothing", Mixture, masked,
     kind="nan", phase="forward", module="last", op="aten.addmm.default", sample=2)


def zero_row():
    model = Wrapped(torch.nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)))
    with torch.no_grad():
        model.part.parametrizations.weight.original1[2] = 0.0
    return model


case("weight_norm_of_a_zero_row", zero_row, value(None), training=False,
     kind="nan", phase="forward", module="part.parametrizations.weight.0", op="aten._weight_norm_interface.default", sample=None)


class Checkpointed(nn.Module):
    def __init__(self, reentrant, through_module):
        super().__init__()
        self.first = nn.Linear(6, 6, bias=False)
        self.part = Part(lambda x: x / (x.pow(2).sum(-1, keepdim=True).sqrt() + 1e-6))
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(6, 2)
        self.reentrant, self.through_module = reentrant, through_module

    def block(self, x):
        return self.drop(self.part(x)) * 2

    def forward(self, x):
        run = self.part if self.through_module else self.block
        return self.last(checkpoint(run, self.first(x), use_reentrant=self.reentrant))


for reentrant in (True, False):
    for through in (True, False):
        case(f"checkpoint_reentrant_{reentrant}_module_{through}",
             lambda r=reentrant, t=through: Checkpointed(r, t), value(0.0),
             kind="nan", phase="backward", module="part", op="aten.div.Tensor",
             backward_of="aten.sqrt.default", sample=5, call=0)


class FunctionalCheckpoint(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6, bias=False), nn.Linear(6, 2)

    def forward(self, x):
        def unit(h):
            return h / (h.pow(2).sum(-1, keepdim=True).sqrt() + 1e-6)

        return self.last(checkpoint(unit, self.first(x), use_reentrant=True))


case("checkpoint_of_a_function", FunctionalCheckpoint, value(0.0),
     kind="nan", phase="backward", module="", op="aten.div.Tensor", backward_of="aten.sqrt.default", sample=5)


case("vmapped_normalisation",
     direct(lambda x: torch.vmap(lambda row: row / row.norm())(x)), value(0.0),
     kind="nan", phase="forward", module="part", op="aten.div.Tensor", sample=5)


class Potential(nn.Module):
    """Forces as the gradient of an energy, inside the forward."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 6, bias=False)

    def forward(self, x):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            energy = self.mix(x).pow(2).sum(-1).sqrt().sum()
            (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return force


case("force_as_gradient_in_the_forward", Potential, value(0.0),
     kind="nan", phase="forward", module="", op="aten.div.Tensor", backward_of="aten.sqrt.default", sample=5)


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(6, 18), nn.Linear(6, 2)

    def forward(self, x, scale):
        q, k, v = self.qkv(x).chunk(3, -1)
        scale = scale[:, None, None, None]
        return self.head(F.scaled_dot_product_attention(q[:, None] * scale, k[:, None] * scale, v[:, None])[:, 0])


def scaled(generator, bad):
    scale = torch.ones(4)
    if bad:
        scale[1] = 1e20
    return torch.randn(4, 5, 6, generator=generator), scale


case("fused_attention_overflows", Fused, scaled,
     kind="nan", phase="forward", module="", sample=1,
     op="aten._scaled_dot_product_flash_attention_for_cpu.default")


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


case("nan_label_in_the_batch", WithTarget, labelled,
     loss=lambda model, batch: model(*batch),
     kind="nan", phase="data", module=None, op=None, sample=7)

case("batch_norm_of_one_value", lambda: Wrapped(nn.BatchNorm1d(6)),
     lambda g, bad: torch.randn(1 if bad else 4, 6, generator=g),
     kind="exception", phase="forward", module="part", op=None, sample=None)

class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.open, self.head = nn.Linear(6, 6), nn.Linear(6, 2, bias=False)

    def forward(self, x):
        return self.head(torch.sigmoid(self.open(x) - x.abs().sum(-1, keepdim=True) ** 2))


case("sigmoid_underflows", Gate, lambda g, bad: torch.randn(4, 6, generator=g) * (100 if bad else 0.1),
     kind="zeroed", phase="forward", module="", op="aten.sigmoid.default", sample=None)


class Bins(nn.Module):
    def forward(self, x):
        return torch.div(x, 10, rounding_mode="trunc")


case("everything_rounded_away", lambda: nn.Sequential(Bins(), nn.Linear(6, 2, bias=False)),
     lambda g, bad: torch.randn(4, 6, generator=g) * (1 if bad else 30),
     kind="zeroed", phase="forward", module="0", op="aten.div.Tensor_mode", sample=None)


class HalfTrunk(nn.Module):
    """Half-precision trunk under a large loss scale."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)).half()
        self.out = Part(lambda x: x.float())

    def forward(self, x):
        return self.out(self.body(x.half()))


case("loss_scale_overflows_half", HalfTrunk,
     lambda g, bad: (torch.randn(4, 6, generator=g), 1e8 if bad else 8.0),
     loss=lambda model, batch: model(batch[0]).pow(2).mean() * batch[1],
     kind="inf", phase="backward", module="out", op="aten._to_copy.default", backward_of="aten._to_copy.default", sample=None)


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            h = self.first(x)
        return self.last(h.float().softmax(-1))


case("autocast_linear_overflows", Autocast, value(2e5),
     kind="nan", phase="forward", module="first", op="aten._to_copy.default", sample=5)


class ManyCalls(nn.Module):
    """Encoder and decoder entered from outside, one after the other."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 6), Part(lambda z: torch.sqrt(z))

    def forward(self, x):
        raise NotImplementedError


case("second_call_from_outside", ManyCalls, positive(-50.0),
     loss=lambda model, x: (model.encoder(x).sum() * 0 + model.decoder(x).pow(2).mean()),
     kind="nan", phase="forward", module="decoder", op="aten.sqrt.default", sample=5, root_call=1)


class Unregistered(nn.Module):
    """A submodule in a plain list has no name of its own."""

    def __init__(self):
        super().__init__()
        self.holder = [Part(torch.log)]
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.holder[0](x))


case("module_that_is_not_registered", Unregistered, positive(-1.0),
     kind="nan", phase="forward", module="", op="aten.log.default", sample=5)


class Ignored(nn.Module):
    """log(0) is usual here and masked; in the failing step the mask forgets one."""

    def __init__(self):
        super().__init__()
        self.logs, self.last = Part(lambda x, keep: x.log().masked_fill(~keep, 0.0)), nn.Linear(6, 2)

    def forward(self, x, keep):
        return self.last(self.logs(x, keep))


def forgotten(generator, bad):
    x = torch.rand(6, 6, generator=generator) + 0.1
    x[0, 0] = 0.0
    keep = x > 0
    if bad:
        keep[0, 0] = True
    return x, keep


case("usual_infinity_that_was_not_masked", Ignored, forgotten,
     kind="nan", phase="forward", module="logs", op="aten.masked_fill.Scalar", sample=0)


class Normalizing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 6), nn.InstanceNorm1d(3), nn.Linear(6, 2, bias=False)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


case("constant_sequence_normalised",
     lambda: nn.Sequential(nn.InstanceNorm1d(3), nn.Flatten(), nn.Linear(18, 2, bias=False)),
     lambda g, bad: torch.ones(4, 3, 6) * torch.rand(4, 3, 1, generator=g) if bad else torch.randn(4, 3, 6, generator=g),
     kind="zeroed", phase="forward", module="0", op="aten.native_batch_norm.default", sample=None)

case("input_is_blank", lambda: nn.Sequential(nn.Linear(6, 6, bias=False), nn.Tanh()),
     lambda g, bad: torch.zeros(4, 6) if bad else torch.randn(4, 6, generator=g),
     kind="zeroed", phase="data", module=None, op=None, sample=None)


class Running(nn.Module):
    """Keeps a statistic that breaks while outputs stay fine."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(6))
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        with torch.no_grad():
            self.scale.mul_(0.9).add_(1 / x.abs().amin(0), alpha=0.1)
        return self.last(x)


case("buffer_spoiled_in_the_forward", lambda: nn.Sequential(Running()), value(0.0),
     kind="inf", phase="parameter", module="0", op="aten.reciprocal.default", sample=None)
