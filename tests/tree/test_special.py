"""Sparse, nested, quantized and wrapping tensors."""

import warnings

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from flightrec.errors import CorruptIncidentError
from flightrec.tree import Decoder, Placeholder

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse", "ignore:The PyTorch API of nested", "ignore:torch.quantize"
)


class Bare(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError


class Broken(TwoTensor):
    def __tensor_flatten__(self):
        raise RuntimeError


def coo():
    return torch.sparse_coo_tensor([[0, 0, 1], [2, 2, 0]], [[1.0], [2.0], [3.0]], (2, 3, 1))


@pytest.mark.parametrize("coalesced", [True, False])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_sparse(travel, coalesced, requires_grad):
    value = coo().coalesce() if coalesced else coo()
    value.requires_grad_(requires_grad)
    back = travel([value, value])
    assert back[0] is back[1]
    assert back[0].is_coalesced() == coalesced
    assert back[0].requires_grad == requires_grad
    assert torch.equal(back[0]._indices(), value._indices())
    assert torch.equal(back[0]._values(), value._values())


def test_a_sparse_gradient(travel):
    layer = torch.nn.Embedding(5, 2, sparse=True)
    layer(torch.tensor([1, 1, 3])).sum().backward()
    back = travel(layer.weight.grad)
    assert back.is_sparse
    assert torch.equal(back.to_dense(), layer.weight.grad.to_dense())
    assert [ref.name for ref in travel.refs] == ["value.indices", "value.values"]


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_compressed(travel, layout):
    kind = getattr(torch, f"sparse_{layout}")
    dense = torch.arange(16.0).reshape(4, 4).tril()
    value = dense.to_sparse(layout=kind, blocksize=(2, 2) if layout[0] == "b" else None)
    back = travel(value)
    assert back.layout is kind
    assert torch.equal(back.to_dense(), dense)


def test_quantized(travel):
    x = torch.randn(3, 4)
    one = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
    scales = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    points = torch.tensor([0, 1, 2])
    each = torch.quantize_per_channel(x, scales, points, 0, torch.qint8)
    back = travel([one, each])
    assert torch.equal(back[0].int_repr(), one.int_repr())
    assert (back[0].q_scale(), back[0].q_zero_point()) == (0.1, 3)
    assert torch.equal(back[1].dequantize(), each.dequantize())
    assert back[1].dtype is torch.qint8


@pytest.mark.parametrize("requires_grad", [True, False])
def test_nested_strided(travel, requires_grad):
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    value = torch.nested.nested_tensor(parts, requires_grad=requires_grad)
    for nested in (value, value.detach().transpose(1, 2)):
        back = travel(nested)
        assert back.requires_grad == nested.requires_grad
        for one, other in zip(back.unbind(), nested.unbind(), strict=True):
            assert torch.equal(one, other)


def test_nested_jagged(travel):
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    value = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
    values, offsets = torch.randn(10, 3), torch.tensor([0, 3, 10])
    holes = torch.nested.nested_tensor_from_jagged(
        values, offsets, lengths=torch.tensor([2, 5]), min_seqlen=2, max_seqlen=5
    )
    back = travel([value, holes, value.detach() * 2])
    assert back[0].layout is torch.jagged
    assert back[0].requires_grad
    assert torch.equal(back[0].values(), value.values())
    assert [len(part) for part in back[1].unbind()] == [2, 5]
    assert torch.equal(back[1].unbind()[1], values[3:8])
    total = back[0].detach() + back[2]
    assert torch.equal(total.values(), value.detach().values() * 3)


def test_wrappers(travel):
    value = TwoTensor(torch.ones(2), torch.zeros(2))
    back = travel([value, torch.nn.Parameter(value)])
    assert type(back[0]) is TwoTensor
    assert back[0].a.tolist() == [1, 1]
    assert back[0].b.tolist() == [0, 0]
    assert isinstance(back[1], torch.nn.Parameter)
    assert back[1].requires_grad


def test_what_cannot_be_taken_apart(travel):
    bare = torch.Tensor._make_subclass(Bare, torch.ones(2))
    broken = Broken(torch.ones(2), torch.zeros(2))
    layout = torch.randn(4, 4).to_mkldnn() if torch.backends.mkldnn.is_available() else bare
    back = travel([bare, broken, layout])
    assert all(type(held) is Placeholder for held in back)
    assert "__torch_dispatch__" in travel.why[0]
    assert travel.why[1] == "RuntimeError while taken apart"
    assert travel.why[2].startswith(("layout", "a tensor subclass"))


def test_inside_transforms(travel):
    nodes = []
    torch.func.vmap(lambda x: nodes.append(travel.encoder.encode([x])) or x)(torch.ones(3))
    assert nodes[0]["v"][0]["$"] == "missing"
    assert "functorch" in travel.why[0]


def test_encoding_does_not_warn(travel):
    values = [coo(), torch.eye(2).to_sparse_csr(), torch.nested.nested_tensor([torch.ones(1)])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in values:
            travel.encoder.encode(value)


def damaged(node, change):
    node = dict(node)
    change(node)
    return node


def test_parts_that_reach_outside(travel, resolver):
    jagged = torch.nested.nested_tensor([torch.ones(2, 3)], layout=torch.jagged)
    values = [coo(), torch.eye(2).to_sparse_csr(), torch.nested.nested_tensor([torch.ones(2)])]
    nodes = travel.encoder.encode([*values, jagged])["v"]
    tensors = {}
    travel.table.freeze()
    for index in range(len(travel.table)):
        tensors[index] = torch.full((9, 9), 99)
    for node in nodes:
        with pytest.raises(CorruptIncidentError):
            Decoder(tensors.__getitem__, resolver).decode(node)
