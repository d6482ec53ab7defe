"""Generators go on drawing where they were."""

import random

import numpy as np
import pytest
import torch

from flightrec.errors import CorruptIncidentError
from flightrec.tree import Decoder
from flightrec.tree.generators import BIT_GENERATORS


def test_torch(travel):
    value = torch.Generator().manual_seed(3)
    torch.rand(5, generator=value)
    back = travel([value, value])
    assert back[0] is back[1] is not value
    assert torch.equal(torch.rand(5, generator=back[0]), torch.rand(5, generator=value))
    assert travel.refs[0].role == "rng"


def test_the_default_one_stays_the_default_one(travel):
    before = torch.get_rng_state()
    assert travel(torch.default_generator) is torch.default_generator
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("bits", BIT_GENERATORS.values(), ids=BIT_GENERATORS)
def test_numpy(travel, bits):
    value, old = np.random.Generator(bits(5)), np.random.RandomState(bits(6))
    value.integers(0, 10, dtype=np.uint32)
    old.normal()
    back = travel([value, old, value])
    assert back[0] is back[2]
    assert back[0].normal(size=9).tolist() == value.normal(size=9).tolist()
    assert [back[1].normal() for _ in range(3)] == [old.normal() for _ in range(3)]


def test_python(travel):
    value = random.Random(4)
    value.gauss(0, 1)
    back = travel(value)
    assert [back.gauss(0, 1), back.random()] == [value.gauss(0, 1), value.random()]


def test_what_has_no_state(travel):
    class Own(np.random.PCG64):
        pass

    travel([random.SystemRandom(), np.random.Generator(Own(1))])
    assert travel.why == [
        "Random keeps its state where Python cannot see it",
        "bit generator Own",
    ]


def test_unknown_bits():
    with pytest.raises(CorruptIncidentError, match="bit generator"):
        Decoder(None, None).decode({"$": "numpy_generator", "bits": "os.system", "state": None})
