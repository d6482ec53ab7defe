"""Distances from bits: every floating type, both zeros, NaN of any payload."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from replay.bits import to_words, word_type
from replay.compare import APART, EXACT, FARTHEST, distance, is_nonfinite, worst

FLOATS = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)


def between(left, right):
    return distance(to_words(left), to_words(right), word_type(left))


def every_value(dtype):
    """Every bit pattern of an 8 or 16 bit type."""
    size = torch.empty(0, dtype=dtype).element_size()
    patterns = np.arange(2 ** (8 * size), dtype=f"uint{8 * size}")
    signed = torch.from_numpy(patterns.view(f"int{8 * size}").copy())
    return patterns, signed.view(dtype)


@pytest.mark.parametrize("dtype", FLOATS[2:])
def test_nonfinite_agrees_with_torch_on_every_bit_pattern(dtype):
    patterns, values = every_value(dtype)
    expected = ~torch.isfinite(values.float()).numpy()
    assert np.array_equal(is_nonfinite(patterns, word_type(values)), expected)


@pytest.mark.parametrize("dtype", FLOATS[2:])
def test_neighbours_on_the_number_line_are_one_apart(dtype):
    _, values = every_value(dtype)
    finite = values[torch.isfinite(values.float())]
    order = np.argsort(finite.float().numpy(), kind="stable")
    ordered = finite.view(torch.uint8 if finite.element_size() == 1 else torch.int16)[
        torch.from_numpy(order)
    ].view(dtype)
    nonzero = ordered[ordered.float() != 0]
    steps = {between(nonzero[i : i + 1], nonzero[i + 1 : i + 2]).max_ulp for i in range(100)}
    assert steps == {1}
    full = between(nonzero[:1], nonzero[-1:])
    assert full.max_ulp == len(nonzero) - 1 + 2  # the places of both zeros count


@pytest.mark.parametrize("dtype", FLOATS[:3])
def test_next_number_is_one_ulp(dtype):
    value = torch.tensor([1.5, -2.0], dtype=dtype)
    after = torch.nextafter(value.double() if dtype == torch.float64 else value, value * 4)
    assert between(value, after).max_ulp == 1


@pytest.mark.parametrize("dtype", FLOATS[:4])
def test_signed_zeros_differ_by_one(dtype):
    found = between(torch.tensor([0.0, 1.0], dtype=dtype), torch.tensor([-0.0, 1.0], dtype=dtype))
    assert (found.fidelity, found.max_ulp) == ("close", 1)


def test_any_nan_equals_any_nan():
    left = torch.tensor([0x7FC00000, 0x7F800001, -4194304], dtype=torch.int32).view(torch.float32)
    right = torch.tensor([0x7FC00001, -1, 0x7FC00000], dtype=torch.int32).view(torch.float32)
    assert left.isnan().all()
    assert right.isnan().all()
    assert between(left, right) == EXACT


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_against_good_is_as_far_as_it_gets(bad):
    assert between(torch.tensor([1.0, bad]), torch.tensor([1.0, 2.0])) == APART
    assert between(torch.tensor([1.0, 2.0]), torch.tensor([1.0, bad])).max_ulp == FARTHEST


def test_rounding_is_close_and_another_mask_is_not():
    generator = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(300, 300, generator=generator) for _ in range(2))
    plain = x @ weight
    other = (x.double() @ weight.double()).float()
    found = between(plain, other)
    assert found.fidelity == "close"
    assert found.max_ulp > 1
    assert between(plain, plain * (torch.rand(300, 300, generator=generator) > 0.1)).fidelity == (
        "diverged"
    )


def test_small_tensors_are_judged_by_their_own_scale():
    gradient = torch.tensor([1e-9, -2e-9])
    assert between(gradient, gradient * 1.01).fidelity == "diverged"
    assert between(gradient, gradient * (1 + 1e-6)).fidelity == "close"


def test_whole_numbers_are_equal_or_not():
    left = torch.tensor([1, 5, 9])
    assert between(left, left.clone()) == EXACT
    assert between(left, torch.tensor([1, 5, 12])).fidelity == "diverged"
    assert between(left, torch.tensor([1, 5, 12])).max_ulp == 3
    assert between(torch.tensor([True]), torch.tensor([False])).fidelity == "diverged"


def test_shapes_that_differ_and_empty_tensors():
    assert between(torch.zeros(2), torch.zeros(3)) == APART
    assert between(torch.zeros(0), torch.zeros(0)) == EXACT


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_equal_to_itself_and_symmetric(values):
    tensor = torch.tensor(values, dtype=torch.float32)
    assert between(tensor, tensor.clone()) == EXACT
    other = tensor.flip(0)
    assert between(tensor, other).max_ulp == between(other, tensor).max_ulp


@given(st.floats(width=64, allow_nan=False, allow_infinity=False))
def test_no_overflow_over_the_whole_range(value):
    found = between(torch.tensor([value], dtype=torch.float64), torch.tensor([-value]).double())
    assert 0 <= found.max_ulp <= FARTHEST
    assert found.max_ulp > 0


def test_worst():
    assert worst([]) == "bit_exact"
    assert worst(["bit_exact", "close"]) == "close"
    assert worst(["close", "diverged", "bit_exact"]) == "diverged"
