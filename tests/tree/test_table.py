"""Tensors collected, copied together, and handed out as bytes."""

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flightrec.errors import CannotRebuildError
from flightrec.tree import TensorLoader, TensorTable
from flightrec.tree import table as module


class Mark:
    """Something to hang on a graph, to see it go."""


def load(table):
    storages, refs = table.export()
    return TensorLoader(refs, lambda n: storages[n].data), storages, refs


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=8))
def test_one_object_one_index(names):
    tensors = {name: torch.full((2,), float(ord(name))) for name in "abc"}
    table = TensorTable()
    found = {}
    for name in names:
        index = table.add(tensors[name], name=name)
        assert found.setdefault(name, index) == index
        table.freeze()
    loader, _, refs = load(table)
    for name, index in found.items():
        assert refs[index].name == name
        assert torch.equal(loader(index), tensors[name])


def test_a_changed_tensor_is_another():
    table, tensor = TensorTable(), torch.zeros(2)
    first = table.add(tensor)
    table.freeze()
    tensor += 1
    second = table.add(tensor)
    table.freeze()
    tensor.numpy()[:] = 7
    third = table.add(tensor)
    table.freeze()
    tensor.data.fill_(8)
    fourth = table.add(tensor)
    assert table.add(tensor) == fourth
    loader, _, refs = load(table)
    values = [loader(i).tolist() for i in (first, second, third, fourth)]
    assert values == [[0, 0], [1, 1], [7, 7], [8, 8]]
    assert len({ref.object for ref in refs}) == 4


def test_metadata_that_changed_is_another():
    table, tensor = TensorTable(), torch.zeros(2, 3)
    first = table.add(tensor)
    table.freeze()
    tensor.requires_grad_()
    second = table.add(tensor)
    table.freeze()
    tensor.data = torch.zeros(2, 3)
    third = table.add(tensor)
    assert len({first, second, third}) == 3


def test_nothing_is_kept_alive():
    table, tensor = TensorTable(), torch.zeros(2)
    ref = weakref.ref(tensor)
    table.add(tensor)
    table.freeze()
    del tensor
    gc.collect()
    assert ref() is None
    assert table.add(torch.ones(2)) == 1


def test_the_graph_is_left_alone():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    freed = []
    weakref.finalize(y.grad_fn.metadata.setdefault("mark", Mark()), freed.append, True)
    node = y.grad_fn
    table = TensorTable(copy=False)
    table.add(y)
    table.freeze()
    assert y._version == 0
    assert y.grad_fn is node
    del y, node
    gc.collect()
    assert freed == [True]


def test_views_stay_views():
    base = torch.arange(12.0)
    table = TensorTable()
    indices = [table.add(t) for t in (base, base.view(3, 4), base[4:8], base.view(3, 4).T)]
    loader, storages, refs = load(table)
    assert len(storages) == 1
    assert table.nbytes == 48
    loader(indices[0])[5] = -1
    assert loader(indices[1])[1, 1] == loader(indices[2])[1] == loader(indices[3])[1, 1] == -1
    assert refs[indices[3]].stride == (1, 4)


def test_equal_is_not_shared():
    table = TensorTable()
    table.add(torch.zeros(2))
    table.add(torch.zeros(2))
    loader, _, _ = load(table)
    assert loader(0).data_ptr() != loader(1).data_ptr()


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.0),
        torch.empty(0, 4),
        torch.empty(2, 0, 3).transpose(0, 2),
        torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.randn(3).expand(4, 3),
        torch.randn(10).unfold(0, 4, 1),
        torch.randn(2, 3, dtype=torch.complex128),
        torch.tensor([True, False]),
        torch.randn(3).to(torch.float8_e5m2),
        torch.randn(3).to(torch.bfloat16),
        torch.randn(3, requires_grad=True),
        torch.empty(3, 4, device="meta").T,
    ],
    ids=lambda t: f"{t.dtype}-{tuple(t.shape)}-{t.device}-{t.stride()}",
)
def test_kinds(tensor, copy):
    table = TensorTable(copy=copy)
    table.add(tensor, role="input", name="x")
    loader, storages, (ref,) = load(table)
    back = loader(0)
    assert (back.dtype, back.size(), back.stride()) == (
        tensor.dtype,
        tensor.size(),
        tensor.stride(),
    )
    assert back.requires_grad == tensor.requires_grad
    assert (ref.role, ref.name, ref.device, ref.reliable) == (
        "input",
        "x",
        str(tensor.device),
        True,
    )
    if tensor.is_meta or tensor.numel() == 0:
        assert ref.storage == -1
        assert storages == ()
    else:
        assert torch.equal(back, tensor)
        assert storages[0].data.dtype == np.uint8


def test_inference_tensors():
    table = TensorTable()
    with torch.inference_mode():
        tensor = torch.ones(2)
        index = table.add(tensor)
        assert table.add(tensor) == index
        table.freeze()
        tensor += 1
        other = table.add(tensor)
        table.freeze()
    loader, _, _ = load(table)
    assert loader(index).tolist() == [1, 1]
    assert loader(other).tolist() == [2, 2]
    assert not loader(other).is_inference()


def test_shuffle_width_is_that_of_most():
    base = torch.zeros(8)
    table = TensorTable()
    for view in (base.view(torch.int16), base, base[1:], torch.zeros(1, dtype=torch.float64)):
        table.add(view)
    _, storages, _ = load(table)
    assert [storage.dtype for storage in storages] == ["float32", "float64"]


def test_by_reference():
    kept, changed, freed = torch.zeros(5000), torch.zeros(5000), torch.zeros(5000)
    table = TensorTable(copy=False)
    for tensor in (kept, changed, freed):
        table.add(tensor)
    table.freeze()
    assert table.nbytes == 0
    changed.numpy()[4000] = 1
    freed.untyped_storage().resize_(0)
    loader, _, refs = load(table)
    assert [ref.reliable for ref in refs] == [True, False, False]
    assert torch.equal(loader(0), kept)
    assert loader(1)[4000] == 1
    with pytest.raises(CannotRebuildError):
        loader(2)
    kept += 1
    assert loader(0)[0] == 0


def test_owned_tensors_are_not_copied():
    tensor = torch.ones(100)
    table = TensorTable(copy=False)
    table.add(tensor, owned=True)
    table.freeze()
    assert table.nbytes == 400
    _, storages, refs = load(table)
    assert refs[0].reliable
    assert storages[0].data.ctypes.data == tensor.data_ptr()


def test_extend():
    shared = torch.arange(4.0)
    first, second = TensorTable(), TensorTable()
    first.add(torch.zeros(1), name="first")
    second.add(shared, name="second")
    second.add(shared[1:], name="view")
    index_map = first.extend(second)
    assert index_map == [1, 2]
    assert len(first) == 3
    assert first.nbytes == 4 + 16
    assert first.add(shared) == 1
    loader, _, refs = load(first)
    assert [ref.name for ref in refs] == ["first", "second", "view"]
    assert len({ref.object for ref in refs}) == 3
    assert loader(1).data_ptr() + 4 == loader(2).data_ptr()
    assert first.extend(second) == [3, 4]


def test_not_plain_is_refused():
    with pytest.raises(TypeError, match="not strided"):
        TensorTable().add(torch.eye(2).to_sparse())


def test_random_state_and_modes_are_left_alone():
    tensor = torch.randn(10, requires_grad=True)
    before = torch.get_rng_state()
    table = TensorTable()
    with torch.device("meta"), torch.autocast("cpu", torch.bfloat16):
        table.add(tensor)
        table.add(tensor[::3])
        table.freeze()
        storages, _ = table.export()
    assert torch.equal(torch.get_rng_state(), before)
    assert len(storages) == 1


def test_out_of_memory_leaves_a_whole_table(monkeypatch):
    table = TensorTable()
    table.add(torch.ones(2))
    table.freeze()
    table.add(torch.ones(3), name="x")
    table.add(torch.ones(0))

    def full(*_):
        raise torch.OutOfMemoryError("full")

    with monkeypatch.context() as patch:
        patch.setattr(module, "place", full)
        with pytest.raises(torch.OutOfMemoryError):
            table.freeze()
    table.add(torch.full((1,), 4.0))
    loader, _, refs = load(table)
    assert [ref.reliable for ref in refs] == [True, False, True, True]
    assert loader(3).item() == 4
    with pytest.raises(CannotRebuildError, match="x was gone"):
        loader(1)


def test_freezing_twice_copies_once():
    table, tensor = TensorTable(), torch.ones(4)
    table.add(tensor)
    table.freeze()
    tensor += 1
    table.freeze()
    loader, _, _ = load(table)
    assert loader(0).tolist() == [1] * 4
