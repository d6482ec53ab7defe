"""Failures that only the backward pass makes."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.replay.failures.base import Part, after_layer, case, positive, value


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
        self.first, self.part, self.head = (
            nn.Linear(6, 6, bias=False),
            Part(Buggy.apply),
            nn.Linear(6, 2),
        )

    def forward(self, x):
        return self.head(self.part(self.first(x)))


case(
    "custom_function_backward",
    CustomFunction,
    value(0.0),
    kind="nan",
    phase="backward",
    module="part",
    op="aten.div.Tensor",
    backward_of="aten.sqrt.default",
    sample=5,
)


for name, function, bad, op, of in (
    (
        "sqrt_backward",
        lambda x: x.pow(2).sum(-1, keepdim=True).sqrt() * torch.ones(6),
        0.0,
        "aten.div.Tensor",
        "aten.sqrt.default",
    ),
    (
        "where_hides_log",
        lambda x: torch.where(x != 0, x.abs().log(), torch.zeros_like(x)),
        0.0,
        "aten.div.Tensor",
        "aten.log.default",
    ),
    (
        "where_hides_division",
        lambda x: torch.where(x == 0, torch.zeros_like(x), 1 / x),
        0.0,
        "aten.mul.Tensor",
        "aten.reciprocal.default",
    ),
    (
        "pow_backward",
        lambda x: x.abs().pow(0.5),
        0.0,
        "aten.pow.Tensor_Scalar",
        "aten.pow.Tensor_Scalar",
    ),
):
    case(
        name,
        after_layer(function),
        value(bad),
        kind="nan",
        phase="backward",
        module="part",
        op=op,
        backward_of=of,
        sample=5,
    )


case(
    "norm_of_quotient_backward",
    after_layer(lambda x: x / (torch.sqrt((x * x).sum(-1, keepdim=True)) + 1e-8)),
    value(0.0),
    kind="nan",
    phase="backward",
    module="part",
    op="aten.div.Tensor",
    backward_of="aten.sqrt.default",
    sample=5,
)


class Angles(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.last = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(torch.acos((self.scale - self.scale.detach() + 1) * x))


case(
    "acos_backward_at_one",
    Angles,
    positive(1.0),
    kind="inf",
    phase="backward",
    module="",
    op="aten.rsqrt.default",
    backward_of="aten.acos.default",
    sample=5,
)


case(
    "manual_sigmoid_backward",
    after_layer(lambda x: 1 / (1 + torch.exp(-x))),
    value(-400.0),
    kind="nan",
    phase="backward",
    module="part",
    op="aten.mul.Tensor",
    sample=5,
)


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
        case(
            f"checkpoint_reentrant_{reentrant}_module_{through}",
            lambda r=reentrant, t=through: Checkpointed(r, t),
            value(0.0),
            kind="nan",
            phase="backward",
            module="part",
            op="aten.div.Tensor",
            backward_of="aten.sqrt.default",
            sample=5,
            call=0,
        )


class FunctionalCheckpoint(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6, bias=False), nn.Linear(6, 2)

    def forward(self, x):
        def unit(h):
            return h / (h.pow(2).sum(-1, keepdim=True).sqrt() + 1e-6)

        return self.last(checkpoint(unit, self.first(x), use_reentrant=True))


case(
    "checkpoint_of_a_function",
    FunctionalCheckpoint,
    value(0.0),
    kind="nan",
    phase="backward",
    module="",
    op="aten.div.Tensor",
    backward_of="aten.sqrt.default",
    sample=5,
)


class HalfTrunk(nn.Module):
    """Half-precision trunk under a large loss scale."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)).half()
        self.out = Part(lambda x: x.float())

    def forward(self, x):
        return self.out(self.body(x.half()))


case(
    "loss_scale_overflows_half",
    HalfTrunk,
    lambda g, bad: (torch.randn(4, 6, generator=g), 1e8 if bad else 8.0),
    loss=lambda model, batch: model(batch[0]).pow(2).mean() * batch[1],
    kind="nan",
    phase="backward",
    module="out",
    op="aten._to_copy.default",
    backward_of="aten._to_copy.default",
    sample=None,
)
