"""Masks, scores and infinities that are usual or not."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.replay.failures.base import Part, case, masked


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


case(
    "softmax_of_masked_row",
    AttentionNet,
    masked,
    kind="nan",
    phase="forward",
    module="layers.0",
    op="aten._softmax.default",
    sample=2,
)


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


case(
    "causal_mask_meets_left_padding",
    BiasNet,
    left_padded,
    kind="nan",
    phase="forward",
    module="attn",
    op="aten._softmax.default",
    sample=1,
)


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


case(
    "half_overflow_in_attention_scores",
    HalfNet,
    loud,
    kind="nan",
    phase="forward",
    module="attn",
    op="aten.bmm.default",
    sample=3,
)


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(6, 18), nn.Linear(6, 2)

    def forward(self, x, scale):
        q, k, v = self.qkv(x).chunk(3, -1)
        scale = scale[:, None, None, None]
        return self.head(
            F.scaled_dot_product_attention(q[:, None] * scale, k[:, None] * scale, v[:, None])[:, 0]
        )


def scaled(generator, bad):
    scale = torch.ones(4)
    if bad:
        scale[1] = 1e20
    return torch.randn(4, 5, 6, generator=generator), scale


case(
    "fused_attention_overflows",
    Fused,
    scaled,
    kind="nan",
    phase="forward",
    module="",
    sample=1,
    op="aten._scaled_dot_product_flash_attention_for_cpu.default",
)


class Ignored(nn.Module):
    """log(0) is usual here and masked; in the failing step the mask forgets one."""

    def __init__(self):
        super().__init__()
        self.logs, self.last = (
            Part(lambda x, keep: x.log().masked_fill(~keep, 0.0)),
            nn.Linear(6, 2),
        )

    def forward(self, x, keep):
        return self.last(self.logs(x, keep))


def forgotten(generator, bad):
    x = torch.rand(6, 6, generator=generator) + 0.1
    x[0, 0] = 0.0
    keep = x > 0
    if bad:
        keep[0, 0] = True
    return x, keep


case(
    "usual_infinity_that_was_not_masked",
    Ignored,
    forgotten,
    kind="inf",
    phase="forward",
    module="logs",
    op="aten.masked_fill.Scalar",
    sample=0,
)


class ConstantMask(nn.Module):
    """Masks with a tensor made on the spot, as older code does."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 1)

    def forward(self, x, keep):
        scores = torch.where(keep, self.score(x)[..., 0], torch.tensor(float("-inf")))
        weights = F.softmax(scores, -1)
        return weights.unsqueeze(1) @ x


class ConstantNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.head = ConstantMask(), nn.Linear(6, 2)

    def forward(self, x, keep):
        return self.head(self.pool(x, keep))


case(
    "mask_made_on_the_spot",
    ConstantNet,
    masked,
    kind="nan",
    phase="forward",
    module="pool",
    op="aten._softmax.default",
    sample=2,
)
