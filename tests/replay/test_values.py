"""Values are looked at and changed."""

from __future__ import annotations

import math

import pytest
import torch

from replay.values import bad_rows, finite_copy, first_bad, flags_of, make_finite, make_uneven


def test_values_are_made_finite_or_uneven():
    bad = torch.tensor([1.0, math.nan, -math.inf])
    assert torch.equal(finite_copy(bad), torch.tensor([1.0, 0.0, 0.0]))
    assert torch.equal(finite_copy(torch.tensor([3])), torch.tensor([3]))
    flat = torch.zeros(3, 4, dtype=torch.float16)
    make_uneven(2.0)(flat)
    assert 0.5 < float(flat.abs().max()) <= 2.0
    assert flat.unique().numel() > 10


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e5m2, torch.complex64])
def test_every_kind_of_number_can_be_made_finite(dtype):
    values = torch.tensor([1.0, math.inf, math.nan]).to(dtype)
    assert first_bad([values], zeros=False) == (2,)
    assert finite_copy(values).to(torch.complex64).real.tolist() == [1.0, 0.0, 0.0]
    sparse = torch.tensor([0.0, math.nan]).to_sparse()
    make_finite(sparse)
    assert sparse.to_dense().tolist() == [0.0, 0.0]


def test_first_bad_element_and_rows():
    grid = torch.ones(2, 3)
    grid[1, 2] = math.inf
    assert first_bad([torch.ones(2), grid], zeros=False) == (1, 2)
    assert first_bad([torch.tensor([1]), torch.ones(2)], zeros=False) is None
    assert first_bad([torch.zeros(2, 2)], zeros=True) == (0, 0)
    assert first_bad([torch.tensor(math.nan)], zeros=False) == ()
    assert bad_rows(grid) == {1}
    assert bad_rows(torch.tensor(math.nan)) == set()


def test_tensors_are_measured_together():
    found = flags_of([torch.ones(2), torch.tensor([1]), torch.tensor([math.inf, 0.0])])
    assert [flags.bad for flags in found] == [set(), {"+inf"}]
