"""Copies: what is shared stays shared, and no more is copied than is looked at."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flightrec.tree.copies import Block, bits, fingerprint, is_still, nowhere, place


@st.composite
def views(draw):
    base = torch.arange(draw(st.integers(1, 400)), dtype=torch.float32)
    found = []
    for _ in range(draw(st.integers(1, 5))):
        dims = draw(st.integers(0, 3))
        size = draw(st.lists(st.integers(0, 4), min_size=dims, max_size=dims))
        stride = draw(st.lists(st.integers(0, 9), min_size=dims, max_size=dims))
        reach = 1 + sum(max(n - 1, 0) * s for n, s in zip(size, stride, strict=True))
        if reach <= len(base):
            offset = draw(st.integers(0, len(base) - reach))
            found.append(base.as_strided(size, stride, offset))
    return found


@given(tensors=views(), mode=st.sampled_from(["copy", "own", "reference"]))
def test_values_and_strides_are_kept(tensors, mode):
    for tensor, placed in zip(tensors, place(tensors, mode), strict=True):
        assert (placed.size, placed.stride) == (tensor.size(), tensor.stride())
        if placed.block is None:
            assert tensor.numel() == 0
        else:
            assert torch.equal(placed.tensor(), tensor)
            assert is_still(tensor, placed)


@given(tensors=views())
def test_what_overlaps_shares(tensors):
    tensors = [tensor for tensor in tensors if tensor.numel()]
    places = place(tensors, "copy")
    for one, first in zip(tensors, places, strict=True):
        for other, second in zip(tensors, places, strict=True):
            if set(one.flatten().tolist()) & set(other.flatten().tolist()):
                assert first.block is second.block


def test_a_slice_does_not_copy_the_whole():
    big = torch.zeros(1000, 1000)
    (row,) = place([big[500]], "copy")
    assert row.block.nbytes <= 4000 + 64
    (column,) = place([big[:, 3]], "copy")
    assert column.block.nbytes == 4000
    assert column.stride == (1,)
    rows = place([big[0], big[999]], "copy")
    assert rows[0].block is not rows[1].block
    (expanded,) = place([big[:, :1].expand(1000, 50)], "copy")
    assert expanded.block.nbytes == 4000
    assert (expanded.size, expanded.stride) == ((1000, 50), (1, 0))


def test_dense_copies_keep_the_order_of_dimensions():
    big = torch.arange(400 * 300 * 8.0).reshape(400, 300, 8)
    view = big[:, :10, :2].permute(2, 1, 0)
    (placed,) = place([view], "copy")
    assert placed.block.nbytes == view.numel() * 4
    assert sorted(placed.stride, reverse=True) == [placed.stride[i] for i in (2, 1, 0)]
    assert torch.equal(placed.tensor(), view)


def test_alignment_is_kept():
    base = torch.arange(1000.0)
    for start in (0, 1, 15, 16, 17, 33):
        (placed,) = place([base[start : start + 100]], "copy")
        assert placed.tensor().data_ptr() % 64 == base[start:].data_ptr() % 64


@pytest.mark.parametrize(
    ("size", "stride"),
    [((2, 2), (3, 0)), ((1, 4), (100, 1)), ((2, 1, 2), (2, 7, 1)), ((3, 2), (1, 3)), ((1,), (0,))],
    ids=str,
)
def test_strides_that_only_look_dense(size, stride):
    tensor = torch.arange(12.0).as_strided(size, stride)
    (placed,) = place([tensor], "copy")
    assert placed.stride == stride
    assert torch.equal(placed.tensor(), tensor)


def test_chunks_of_a_projection_share():
    qkv = torch.arange(2 * 3 * 12.0).reshape(2, 3, 12)
    q, k, v = place(list(qkv.chunk(3, dim=-1)), "copy")
    assert q.block is k.block is v.block
    assert k.offset == q.offset + 4


@pytest.mark.parametrize("kind", ["conj", "neg"])
def test_lazy_bits_are_resolved(kind):
    value = torch.tensor([1 + 2j, 3 - 1j])
    value = value.conj() if kind == "conj" else value.conj().imag
    (placed,) = place([value], "copy")
    assert torch.equal(placed.tensor(), value)
    assert not placed.tensor().is_conj()
    assert not placed.tensor().is_neg()


def test_dtypes_on_one_storage():
    value = torch.arange(8, dtype=torch.int32)
    places = place([value, value.view(torch.float32), value.view(torch.int16)[3:5]], "copy")
    assert len({id(placed.block) for placed in places}) == 1
    assert torch.equal(places[2].tensor(), value.view(torch.int16)[3:5])


def test_is_still_sees_what_versions_miss():
    value = torch.tensor([1.0, float("nan"), 0.0])
    (placed,) = place([value], "copy")
    assert is_still(value, placed)
    value.numpy()[2] = -0.0
    assert not is_still(value, placed)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.complex128])
def test_bits_of_every_width(dtype):
    value = torch.ones(2, 3).to(dtype).T
    assert torch.equal(bits(value), bits(value.clone()))
    assert not torch.equal(bits(value), bits(torch.zeros_like(value)))


@pytest.mark.parametrize("nbytes", [0, 5, 100, 8192, 8193, 40000])
def test_fingerprint_changes_with_bytes_and_their_order(nbytes):
    data = torch.randint(0, 256, (nbytes,), dtype=torch.uint8)

    def same(other):
        return all(map(torch.equal, fingerprint(data), fingerprint(other)))

    assert same(data.clone())
    for index in {0, nbytes // 2, nbytes - 1} if nbytes else ():
        changed = data.clone()
        changed[index] ^= 1
        assert not same(changed)
    if nbytes > 50:
        swapped = data.clone()
        swapped[:16], swapped[16:32] = data[16:32], data[:16]
        assert not same(swapped)


def test_a_block_notices_that_memory_was_freed():
    value = torch.ones(100)
    block = Block(value, 0, 400)
    assert not block.freed
    value.untyped_storage().resize_(0)
    assert block.freed


def test_nowhere():
    assert nowhere(torch.ones(2)).lost
    assert not nowhere(torch.ones(0)).lost
    with pytest.raises(ValueError, match="no block"):
        nowhere(torch.ones(2)).tensor()
