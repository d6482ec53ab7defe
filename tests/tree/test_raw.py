"""Bytes out of tensors and back."""

import hashlib

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flightrec.errors import CannotRebuildError, CorruptIncidentError
from flightrec.tree import TensorLoader, from_raw, raw_bytes, tensor_hash, to_storage
from flightrec.tree.raw import DTYPES, Quiet, dtype_name, extent, storage_bytes
from flightrec.types import TensorRef

FIXED = [
    name
    for name in DTYPES
    if not name.startswith(("q", "bits", "int", "uint", "float4", "float8_e8"))
] + ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def blake(data):
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@pytest.mark.filterwarnings("ignore:.*Complex")
@pytest.mark.parametrize("name", FIXED)
def test_every_dtype_to_the_bit(name):
    dtype = DTYPES[name]
    assert dtype_name(dtype) == name
    data = np.random.default_rng(0).integers(0, 2 if name == "bool" else 256, 64, dtype=np.uint8)
    made = from_raw(to_storage(data), name, 0, (64 // dtype.itemsize,), (1,))
    assert made.dtype is dtype
    assert raw_bytes(made).tobytes() == data.tobytes()
    assert tensor_hash(made) == blake(data)


def test_bytes_are_those_of_the_contiguous_tensor():
    base = torch.arange(12.0).reshape(3, 4)
    for view in (base.T, base[:, 1], base[1:], base[0].expand(2, 4), base[0, 0]):
        assert raw_bytes(view).tobytes() == view.numpy().tobytes()
        assert tensor_hash(view) == blake(view.numpy().tobytes())


def test_conjugates_and_negatives_are_resolved():
    value = torch.tensor([1 + 2j, 3 - 4j])
    assert raw_bytes(value.conj()).tobytes() == value.conj().resolve_conj().numpy().tobytes()
    negative = value.conj().imag
    assert negative.is_neg()
    assert raw_bytes(negative).view(np.float32).tolist() == [-2, 4]


def test_without_bytes():
    for value in (torch.empty(0, 3), torch.empty(3, device="meta")):
        assert raw_bytes(value).shape == (0,)
        assert tensor_hash(value) == blake(b"")


def test_signed_zero_and_nan_payload_differ():
    one = torch.tensor([0.0, float("nan")])
    other = torch.tensor([-0.0, float("nan")])
    assert tensor_hash(one) != tensor_hash(other)


def test_neither_gradients_nor_graph_are_touched():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    raw_bytes(y)
    tensor_hash(y)
    assert y.grad_fn is not None
    assert y._version == 0
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_not_plain():
    with pytest.raises(TypeError, match="strided"):
        raw_bytes(torch.eye(2).to_sparse())


def test_hash_of_parts():
    sparse = torch.eye(2).to_sparse()
    parts = raw_bytes(sparse._indices()).tobytes() + raw_bytes(sparse._values()).tobytes()
    assert tensor_hash(sparse) == blake(parts)


def test_extent():
    assert extent((3, 4), (4, 1)) == 12
    assert extent((3, 4), (1, 0)) == 3
    assert extent((0, 4), (4, 1)) == 0
    assert extent((), ()) == 1


def test_tensors_over_one_storage_share_it():
    storage = to_storage(np.arange(32, dtype=np.uint8))
    whole = from_raw(storage, "uint8", 0, (32,), (1,))
    words = from_raw(storage, "int16", 2, (2, 3), (1, 2))
    whole[4] = 99
    assert words[0, 0].item() == 99 + 256 * 5
    assert words.stride() == (1, 2)


def test_a_copy_is_the_loaders_own():
    data = np.zeros(4, dtype=np.uint8)
    data.flags.writeable = False
    tensor = from_raw(to_storage(data), "float32", 0, (1,), (1,))
    tensor += 1
    assert data.sum() == 0


def test_sharing_bytes_with_a_tensor():
    tensor = torch.arange(4, dtype=torch.int32)
    storage_bytes(tensor, 4, 4).fill_(0)
    assert tensor.tolist() == [0, 0, 2, 3]


@pytest.mark.parametrize(
    ("dtype", "offset", "size", "stride"),
    [
        ("float32", 0, (5,), (1,)),
        ("float32", 1, (4,), (1,)),
        ("float32", 0, (2, 2), (4, 1)),
        ("float32", 2**62, (1,), (1,)),
        ("float32", 0, (2**40,), (2**40,)),
        ("float32", 0, (2**32, 2**32), (0, 0)),
        ("float32", -1, (1,), (1,)),
        ("float32", 0, (1,), (-1,)),
        ("float32", 0, (1,), (1, 1)),
        ("float32", 0, (1,) * 65, (1,) * 65),
        ("nonsense", 0, (1,), (1,)),
        ("qint8", 0, (1,), (1,)),
        ("Tensor", 0, (1,), (1,)),
    ],
    ids=str,
)
def test_reaching_outside(dtype, offset, size, stride):
    with pytest.raises(CorruptIncidentError):
        from_raw(to_storage(np.zeros(16, dtype=np.uint8)), dtype, offset, size, stride)


def test_a_tensor_without_a_storage():
    assert from_raw(None, "float16", 0, (0, 3), (3, 1)).shape == (0, 3)
    assert from_raw(None, "float16", 0, (2, 3), (1, 2), "meta").stride() == (1, 2)
    with pytest.raises(CorruptIncidentError, match="without a storage"):
        from_raw(None, "float16", 0, (2, 3), (3, 1))


def ref(**changes):
    fields = {"storage": 0, "dtype": "float32", "offset": 0, "size": (2,), "stride": (1,)}
    return TensorRef(**{**fields, "object": 0, **changes})


def test_loader_keeps_objects_and_storages():
    read = []
    refs = [
        ref(object=0, requires_grad=True),
        ref(object=0, requires_grad=True),
        ref(object=1, offset=1, size=(1,)),
        ref(object=2, storage=-1, device="meta"),
        ref(object=3, storage=-1, reliable=False, name="gone"),
        ref(object=4, dtype="int32", requires_grad=True),
    ]

    def data(number):
        read.append(number)
        return np.zeros(8, dtype=np.uint8)

    load = TensorLoader(refs, data)
    assert load(0) is load(1)
    assert load(0).requires_grad
    assert load(0).is_leaf
    with torch.no_grad():
        load(0)[1] = 5
    assert load(2).item() == 5
    assert load(3).is_meta
    assert not load(5).requires_grad
    assert read == [0]
    assert TensorLoader(refs, data)(2).item() == 0
    with pytest.raises(CannotRebuildError, match="gone"):
        load(4)
    for index in (-1, 6):
        with pytest.raises(CorruptIncidentError, match="no tensor"):
            load(index)


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_quiet_hides_us_and_gives_everything_back():
    with Counting() as mode, torch.device("meta"):
        with Quiet():
            assert torch.empty(1).device.type == "cpu"
        assert mode.seen == []
        assert torch.empty(1).is_meta
        torch.empty(1, device="cpu") + 1
        assert mode.seen


def test_quiet_inside_transforms():
    seen = []

    def loss(x):
        with Quiet():
            seen.append(torch.ones(2).clone())
        return (x * x).sum()

    gradient = torch.func.grad(loss)(torch.tensor([1.0, 2.0]))
    assert gradient.tolist() == [2, 4]
    assert not torch._C._functorch.is_functorch_wrapped_tensor(seen[0])
