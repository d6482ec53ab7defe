"""One reduction per tensor, storages told apart, nothing kept alive."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch

from replay.meter import FLUSH, Meter


def flags(tensor):
    meter = Meter()
    span = meter.span(tensor)
    meter.settle()
    return meter.flags[span.slot]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2]
)
def test_values_are_classified_in_every_floating_type(dtype):
    def made(*values):
        return flags(torch.tensor(values).to(dtype))

    assert made(1.0, -2.0)[:4] == (False, False, False, 2.0)
    assert made(math.nan, math.inf).bad == {"nan"}
    assert made(math.inf, 0.0).bad == {"+inf"}
    assert made(-math.inf, math.inf).bad == {"+inf", "-inf"}
    assert made(0.0, -0.0).zero()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1, 2]),
        torch.tensor([True]),
        torch.empty(0, 3),
        torch.empty(2, 3, device="meta"),
        torch.empty(2, dtype=torch.float8_e5m2)[:0],
    ],
)
def test_tensor_without_real_values_is_measured_as_nothing(tensor):
    assert flags(tensor) is None


def test_sparse_and_complex_values_are_looked_at():
    dense = torch.tensor([[0.0, math.inf], [0.0, 0.0]])
    assert flags(dense.to_sparse()).bad == {"+inf"}
    assert flags(torch.complex(torch.tensor([1.0]), torch.tensor([math.nan]))).bad == {"nan"}
    conjugate = torch.complex(torch.tensor([1.0]), torch.tensor([math.inf])).conj()
    assert flags(conjugate).bad == {"-inf"}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_values_are_looked_at():
    parts = [torch.ones(2), torch.tensor([1.0, math.nan, 2.0])]
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(parts, layout=layout)
        assert flags(nested).bad == {"nan"}


def test_one_tensor_is_measured_once_until_it_is_written():
    meter = Meter()
    tensor = torch.ones(4)
    first, again = meter.span(tensor), meter.span(tensor)
    assert first == again
    tensor.mul_(0)
    assert meter.wrote(tensor, 3).slot != first.slot
    assert meter.span(tensor).maker == 3


def test_view_of_all_elements_needs_no_measurement_and_a_slice_does():
    meter = Meter()
    base = torch.arange(6.0).reshape(2, 3)
    span = meter.wrote(base, 0)
    meter.viewed(base, span, base.t(), 1)
    assert meter.span(base.t()).slot == span.slot
    meter.viewed(base, span, base[0, :1], 2)
    assert meter.span(base[0, :1]).slot != span.slot
    assert meter.span(base[0, :1]).maker == 2


def test_storage_number_is_shared_by_views_and_never_used_again():
    meter = Meter()
    seen = set()
    for _ in range(300):
        tensor = torch.ones(8)
        number = meter.storage(tensor)
        assert meter.storage(tensor[2:]) == number
        assert number not in seen
        seen.add(number)


def test_spans_tell_stretches_of_one_storage_apart():
    meter = Meter()
    base = torch.zeros(4, 6)
    spans = [meter.span(base[row]) for row in range(4)]
    assert [(each.start, each.stop) for each in spans] == [(24 * n, 24 * n + 24) for n in range(4)]
    column = meter.span(base[:, 1])
    assert (column.start, column.stop) == (4, 4 * (1 + 18 + 1))


def test_measured_tensors_are_not_kept():
    meter = Meter()
    tensor = torch.ones(1000)
    meter.span(tensor)
    gone = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert gone() is None


def test_queue_is_emptied_now_and_then():
    meter = Meter()
    for number in range(FLUSH + 1):
        meter.span(torch.full((2,), float(number)))
    assert meter.flags[FLUSH].absmax == FLUSH - 1


class Wrapped(torch.Tensor):
    """A tensor that only wraps another one."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} was called on a wrapper")


def test_wrapping_subclass_is_measured_by_what_it_wraps():
    inner = torch.tensor([1.0, math.inf])
    assert flags(Wrapped(inner)).bad == {"+inf"}
    meter = Meter()
    assert meter.storage(Wrapped(inner)) == meter.storage(inner)
