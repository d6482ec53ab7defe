import os
import re
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flightrec.incident import layout


@pytest.mark.parametrize("name", layout.DTYPES)
def test_element_sizes_are_those_of_torch(name):
    element = layout.DTYPES[name]
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"no torch.{name} in this torch")
    assert dtype.itemsize == element.itemsize
    assert np.dtype(element.stored).itemsize == element.width
    assert element.width * element.lanes == element.itemsize


@pytest.mark.parametrize("name", ["float32", "int64", "uint8", "float16"])
def test_native_types_are_stored_as_they_are(name):
    assert np.dtype(layout.DTYPES[name].stored) == np.dtype(name)


def test_every_dtype_that_tensors_of_this_torch_have_is_listed():
    known = {str(v).removeprefix("torch.") for v in vars(torch).values() if type(v) is torch.dtype}
    assert known - layout.DTYPES.keys() <= {"bit"}


shapes = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)


@given(shape=shapes, itemsize=st.sampled_from([1, 2, 4, 8]), most=st.integers(8, 200))
def test_chunks_cut_row_major_order_into_stretches(shape, itemsize, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "CHUNK_BYTES", most)
        chunk = layout.chunk_shape(shape, itemsize)
        pieces = list(layout.chunks(shape, chunk))
    assert np.prod(chunk) * itemsize <= most
    assert all(0 < part <= whole for part, whole in zip(chunk, shape, strict=True))
    numbers = np.arange(np.prod(shape)).reshape(shape)
    seen = []
    for piece in pieces:
        region = tuple(slice(o, o + n) for o, n in zip(piece.offset, chunk, strict=True))
        inside = numbers[region].reshape(-1)
        assert inside.tolist() == list(range(piece.start, piece.start + piece.length))
        seen += inside.tolist()
    assert seen == numbers.reshape(-1).tolist()


def test_a_large_dataset_is_cut_evenly():
    assert layout.chunk_shape((1024, 1025), 4) == (512, 1025)
    assert layout.chunk_shape((3 * 2**20 + 2,), 4) == (2**20 * 3 // 4 + 1,)
    assert layout.chunk_shape((3, 2**21), 4) == (1, 2**20)
    assert layout.chunk_shape((7,), 8) == (7,)


@pytest.mark.parametrize("name", ["a", "0198-ab_C", "A" * 64, layout.new_id()])
def test_safe_ids(name):
    assert layout.safe_id(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "_", "a/b", "a\\b", "a\0", "a\n", "a.h5", "A" * 65, "\xe4", "a b"]
)
def test_ids_that_are_no_file_names(name):
    assert not layout.safe_id(name)


@pytest.mark.parametrize("python_has_it", [True, False])
def test_new_ids_sort_by_time_and_differ(monkeypatch, python_has_it):
    if not python_has_it:
        monkeypatch.delattr(uuid, "uuid7", raising=False)
    elif not hasattr(uuid, "uuid7"):
        pytest.skip("this Python has no uuid7")
    before = time.time_ns() // 1_000_000
    made = [layout.new_id() for _ in range(1000)]
    after = time.time_ns() // 1_000_000
    assert len(set(made)) == 1000
    for one in (uuid.UUID(made[0]), uuid.UUID(made[-1])):
        assert one.version == 7
        assert one.variant == uuid.RFC_4122
        assert before <= one.int >> 80 <= after
    first = made[0]
    while (now := layout.new_id())[:18] == first[:18]:  # 60 bits of time: next tick is 244 ns off
        pass
    assert now > first


def test_new_ids_leave_random_generators_alone():
    import random

    random.seed(1)
    np.random.seed(1)
    state = random.getstate(), np.random.get_state()[1].tolist()
    layout.new_id()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == state


def test_a_temporary_name_is_hidden_and_no_incident(tmp_path):
    name = layout.temporary_name("abc")
    assert name.startswith(".")
    assert not name.endswith(layout.SUFFIX)
    assert str(os.getpid()) in name


def aged(path, seconds):
    path.touch()
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def test_a_file_of_a_live_process_is_not_stale(tmp_path):
    assert not layout.is_stale(aged(tmp_path / layout.temporary_name("abc"), 10**6))


def test_a_file_of_a_dead_process_is_stale_once_it_rests(tmp_path):
    code = "from flightrec.incident import layout; print(layout.temporary_name('abc'))"
    name = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert layout.is_stale(aged(tmp_path / name, 61))
    assert not layout.is_stale(aged(tmp_path / name, 0))
    assert layout.is_stale(tmp_path / name, idle_s=0)


def test_a_file_of_another_host_is_stale_after_a_day(tmp_path):
    name = re.sub("@.*@", "@elsewhere@", layout.temporary_name("abc"))
    assert not layout.is_stale(aged(tmp_path / name, 3600))
    assert layout.is_stale(aged(tmp_path / name, 25 * 3600))


@pytest.mark.parametrize("name", ["abc.h5", ".abc.part", ".abc@h@x.part", "notes.txt"])
def test_other_files_are_never_stale(tmp_path, name):
    assert not layout.is_stale(aged(tmp_path / name, 10**6))


def test_a_file_that_vanished_is_not_stale(tmp_path):
    assert not layout.is_stale(tmp_path / layout.temporary_name("abc"))
