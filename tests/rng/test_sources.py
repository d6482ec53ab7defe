"""NumPy's global generator read the short way, and devices that are not there."""

import numpy as np
import pytest
import torch

from flightrec.rng.sources import NumpyReader, devices, fits, kind_of, set_numpy, spots


def same(one, other):
    return (
        one["bit_generator"] == other["bit_generator"]
        and one["has_gauss"] == other["has_gauss"]
        and one["gauss"] == other["gauss"]
        and one["state"]["pos"] == other["state"]["pos"]
        and np.array_equal(one["state"]["key"], other["state"]["key"])
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda: None,
        lambda: np.random.rand(),
        lambda: np.random.rand(700),
        lambda: np.random.normal(),
        lambda: np.random.seed(3),
        lambda: np.random.shuffle([1, 2, 3]),
    ],
    ids=["nothing", "one", "many", "normal", "seed", "shuffle"],
)
def test_the_short_way_is_right(draw):
    reader = NumpyReader()
    for _ in range(6):
        assert same(reader.read(), np.random.get_state(legacy=False))
        assert same(reader.read(), np.random.get_state(legacy=False))
        draw()


def test_an_unchanged_state_is_one_object():
    np.random.seed(0)
    reader = NumpyReader()
    assert reader.read() is reader.read()


def test_a_spare_gaussian_is_seen_and_restored():
    np.random.seed(0)
    reader = NumpyReader()
    np.random.normal()
    state = reader.read()
    assert state["has_gauss"]
    first = np.random.normal()
    assert not reader.read()["has_gauss"]
    set_numpy(state)
    reader.forget()
    assert reader.read()["has_gauss"]
    assert np.random.normal() == first


def test_devices_in_use_only():
    names = [name for name, _, _ in devices()]
    assert all(name.partition(":")[0] in ("cuda", "xpu", "mps") for name in names)
    if not torch.cuda.is_available():
        assert not any(name.startswith("cuda") for name, _, _ in devices(all_devices=True))


def test_fits():
    generator = np.random.default_rng(0)
    assert kind_of(generator) == "numpy"
    assert fits("numpy", generator, generator.bit_generator.state)
    assert not fits("numpy", generator, {"bit_generator": "SFC64"})
    assert not fits("torch", generator, None)
    own = torch.Generator()
    assert fits("torch", own, own.get_state())
    assert not fits("torch", own, own.get_state()[:16])
    assert kind_of(None) is None


def test_spots_of_a_module_leave_torchs_own_alone():
    assert list(spots("", torch.nn.Linear(1, 1))) == []
