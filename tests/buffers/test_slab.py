import math

import numpy as np
import pytest
import torch

from flightrec.buffers.slab import Slab, measurable
from flightrec.types import Site, Stat


def site(name="m", kind="output"):
    return Site(module=name, kind=kind)


def read(slab):
    slab.read()
    return slab.rows()


def test_range_of_a_healthy_tensor():
    slab = Slab()
    slab.put_range(site(), torch.tensor([-3.0, 0.0, 2.0]))
    sites, stats = read(slab)
    assert sites == (site(),)
    assert stats[0, [Stat.MIN, Stat.MAX, Stat.ABSMAX, Stat.NAN, Stat.INF, Stat.NUMEL]].tolist() == [
        -3, 2, 3, 0, 0, 3,
    ]  # fmt: skip


def test_nan_does_not_hide_inf():
    slab = Slab()
    slab.put_range(site(), torch.tensor([math.nan, math.inf, -math.inf, 1.0]))
    _, stats = read(slab)
    assert (stats[0, Stat.NAN], stats[0, Stat.INF]) == (1, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_floating_dtype(dtype):
    slab = Slab()
    slab.put_range(site(), torch.tensor([1.0, -2.0], dtype=dtype))
    slab.put_norms((site(kind="param_grad"),), [torch.tensor([3.0, 4.0], dtype=dtype)])
    _, stats = read(slab)
    assert stats[0, Stat.ABSMAX] == 2
    assert stats[1, Stat.L2] == 5


def test_a_norm_that_overflows_half_is_not_a_bad_tensor():
    slab = Slab()
    slab.put_norms((site(kind="param_grad"),), [torch.full((1000,), 60000.0).half()])
    _, stats = read(slab)
    assert (stats[0, Stat.NAN], stats[0, Stat.INF]) == (0, 0)
    assert stats[0, Stat.L2] == pytest.approx(59968 * math.sqrt(1000), rel=1e-3)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0),
        torch.ones(3, dtype=torch.int64),
        torch.ones(2, 2, device="meta"),
        torch.ones(2, dtype=torch.bool),
    ],
)
def test_what_cannot_be_measured_is_left_out(tensor):
    assert measurable(tensor) is None
    slab = Slab()
    slab.put_range(site(), tensor)
    assert read(slab)[0] == ()


def test_sparse_complex_and_fp8_are_measured():
    sparse = torch.sparse_coo_tensor([[0, 1]], [1.0, math.nan], (4,), check_invariants=True)
    slab = Slab()
    slab.put_range(site("sparse"), sparse)
    slab.put_range(site("complex"), torch.tensor([1 + 2j, complex(0, math.inf)]))
    slab.put_range(site("fp8"), torch.tensor([1.0, -2.0]).to(torch.float8_e5m2))
    _, stats = read(slab)
    assert stats[0, Stat.NAN] == 1
    assert stats[1, Stat.INF] == 1
    assert stats[2, Stat.ABSMAX] == 2


def test_mixed_and_sparse_gradients_together():
    sparse = torch.sparse_coo_tensor([[0]], [3.0], (4,), check_invariants=True)
    slab = Slab()
    names = [site(name, "param_grad") for name in "ab"]
    slab.put_norms(tuple(names), [sparse, torch.tensor([4.0], dtype=torch.float64)])
    sites, stats = read(slab)
    assert sites == tuple(names)
    assert stats[:, Stat.L2].tolist() == [3, 4]


def test_measuring_changes_neither_values_nor_random_state_nor_graph():
    tensor = torch.randn(5, requires_grad=True)
    before, state = tensor.detach().clone(), torch.get_rng_state()
    slab = Slab()
    slab.put_range(site(), tensor)
    slab.put_norms((site(),), [tensor.detach()])
    read(slab)
    assert torch.equal(tensor.detach(), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert tensor.grad_fn is None
    assert tensor._version == 0


def test_clear_forgets_and_rows_accumulate_over_reads():
    slab = Slab()
    slab.put_range(site("a"), torch.ones(2))
    slab.read()
    slab.put_range(site("b"), torch.ones(2))
    sites, stats = read(slab)
    assert [s.module for s in sites] == ["a", "b"]
    assert stats.shape == (2, len(Stat))
    slab.clear()
    assert read(slab)[1].shape == (0, len(Stat))
    assert np.isfinite(stats[:, Stat.ABSMAX]).all()
