"""Which tensors go to the device of a replay, and what is kept unpacked."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from flightrec.types import TensorRef
from replay import decoding
from replay.decoding import SegmentDecoder, Tensors

CUDA = torch.device("cuda:0")


def ref(**fields):
    known = {"storage": 0, "dtype": "float32", "offset": 0, "size": (2,), "stride": (1,)}
    return TensorRef(**{**known, "object": 0, **fields})


def incident(*refs, reads=None):
    def storage(number):
        if reads is not None:
            reads.append(number)
        return np.array([1.0, 2.0, 3.0], dtype=np.float32).view(np.uint8)

    return SimpleNamespace(tensors=list(refs), storage=storage)


@pytest.mark.parametrize(
    ("refs", "home"),
    [
        ([ref(), ref(role="rng"), ref(name="args[0].batch_sizes")], [False, True, True]),
        ([ref(device="cuda:0"), ref(), ref(role="rng")], [False, True, True]),
    ],
    ids=["recorded on the cpu", "recorded on cuda"],
)
def test_what_stays_on_the_cpu_where_the_replay_is_on_a_device(refs, home):
    tensors = Tensors(incident(*refs), CUDA)
    assert tensors._at_home == home


def test_everything_is_on_the_cpu_in_a_replay_there():
    tensors = Tensors(incident(ref(device="cuda:0"), ref(role="rng")), torch.device("cpu"))
    assert tensors._at_home == [True, True]
    assert tensors.fresh(0).tolist() == [1.0, 2.0]


def test_loaders_do_not_share_and_read_once():
    reads = []
    tensors = Tensors(incident(ref(), ref(offset=1, object=1), reads=reads), torch.device("cpu"))
    one, other = tensors.loader(), tensors.loader()
    one(0).zero_()
    assert other(0).tolist() == [1.0, 2.0]
    assert one(1).tolist() == [0.0, 3.0]
    assert tensors.on_cpu(0).tolist() == [1.0, 2.0]
    assert reads == [0]


def test_the_cache_is_bounded(monkeypatch):
    reads = []
    many = [ref(storage=number, object=number) for number in range(4)]
    monkeypatch.setattr(decoding, "CACHE_BYTES", 100)
    tensors = Tensors(incident(*many, reads=reads), torch.device("cpu"))
    for number in (0, 1, 2, 3, 0, 3):
        tensors.fresh(number)
    assert reads == [0, 1, 2, 3]
    monkeypatch.setattr(decoding, "CACHE_BYTES", 30)
    for number in (0, 1, 2, 3):
        tensors.fresh(number)
    assert tensors._cached <= 48


@pytest.mark.parametrize(
    ("recorded_on", "device", "named", "expected"),
    [
        ("cpu", "cpu", "cpu", "cpu"),
        ("cpu", "cuda:0", "cpu", "cuda:0"),
        ("cuda:0", "cpu", "cuda:0", "cpu"),
        ("cuda:0", "cuda:1", "cuda:0", "cuda:1"),
        ("cuda:0", "cuda:0", "cpu", "cpu"),
        ("cuda:0", "cuda:0", "meta", "meta"),
    ],
)
def test_devices_that_values_name_follow(recorded_on, device, named, expected):
    tensors = Tensors(incident(ref(device=recorded_on)), torch.device(device))
    assert str(tensors.place(named)) == expected
    decoder = SegmentDecoder(tensors, None, {})
    assert str(decoder.value({"$": "device", "v": named})) == expected


@pytest.mark.parametrize(
    ("recorded_on", "autocast", "device", "expected"),
    [
        ("cpu", "cpu", "cpu", "cpu"),
        ("cuda:0", "cuda", "cpu", "cpu"),
        ("cpu", "cpu", "cuda", "cuda"),
        ("cuda:0", "cuda", "cuda", "cuda"),
        ("cuda:0", "cpu", "cuda", "cpu"),
    ],
)
def test_autocast_follows_the_device(recorded_on, autocast, device, expected):
    tensors = Tensors(incident(ref(device=recorded_on)), torch.device(device))
    decoder = SegmentDecoder(tensors, None, {})
    entry = {"device": autocast, "dtype": "bfloat16", "enabled": True, "cache": True}
    assert decoder._autocast(entry)["device"] == expected
