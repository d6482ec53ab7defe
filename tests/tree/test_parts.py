"""Which tensors are plain, and what the others are made of."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from flightrec.tree.parts import components, is_plain, is_wrapper, parts, why_opaque


class Named(torch.Tensor):
    """Adds methods only, and counts what it is asked."""

    asked = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.asked += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Dispatching(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError


def test_plain():
    for value in (
        torch.ones(2),
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Buffer(torch.ones(2)),
        torch.ones(2).expand(3, 2),
        torch.empty(2, device="meta"),
        torch.ones(2, dtype=torch.bfloat16),
    ):
        assert is_plain(value)
        assert list(components(value)) == [value] or value.numel() > 1
        assert why_opaque(value) is None


def test_a_subclass_is_looked_at_without_being_asked():
    named = torch.ones(2).as_subclass(Named)
    Named.asked = 0
    assert is_plain(named)
    assert Named.asked == 0


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_and_compressed():
    dense = torch.eye(4)
    assert list(parts(dense.to_sparse())) == ["indices", "values"]
    for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        blocks = (2, 2) if "b" in str(layout).removeprefix("torch.sparse") else None
        value = dense.to_sparse(layout=layout, blocksize=blocks)
        assert not is_plain(value)
        assert list(parts(value)) == ["compressed", "plain", "values"]
        assert len(list(components(value))) == 3


def test_wrappers_are_taken_apart_to_the_bottom():
    inner = TwoTensor(torch.ones(2), torch.zeros(2))
    outer = TwoTensor(inner, TwoTensor(torch.ones(2), torch.zeros(2)))
    assert is_wrapper(outer)
    assert not is_plain(outer)
    assert list(parts(outer)) == ["a", "b"]
    assert [part.sum().item() for part in components(outer)] == [2, 0, 2, 0]


def test_opaque():
    value = torch.Tensor._make_subclass(Dispatching, torch.ones(2))
    assert "__torch_dispatch__" in why_opaque(value)
    with pytest.raises(TypeError, match="__torch_dispatch__"):
        list(components(value))
    seen = []
    torch.func.vmap(lambda x: seen.append((is_plain(x), why_opaque(x))) or x)(torch.ones(3))
    assert seen[0][0] is False
    assert "functorch" in seen[0][1]
