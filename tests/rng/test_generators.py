"""Every generator draws the same again after restore, here and from JSON."""

import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flightrec.errors import CodeMissingError, CorruptIncidentError
from flightrec.rng import Generators
from flightrec.tree import TensorLoader, TensorTable
from flightrec.tree.generators import BIT_GENERATORS


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.own = torch.Generator().manual_seed(1)
        self.several = [np.random.default_rng(2), random.Random(3)]
        self.named = {"old": np.random.RandomState(4), "text": "x"}
        self.inner = torch.nn.Linear(1, 1)
        self.inner.borrowed = self.own
        self.secret = random.SystemRandom()
        self.default = torch.default_generator


@pytest.fixture(autouse=True)
def _strict(monkeypatch):
    monkeypatch.setenv("FLIGHTREC_STRICT", "1")


DRAWS = {
    "torch": lambda _: torch.rand(3).tolist(),
    "randn": lambda _: torch.randn(17).tolist(),
    "dropout": lambda _: torch.nn.functional.dropout(torch.ones(40)).tolist(),
    "numpy": lambda _: np.random.rand(3).tolist(),
    "numpy normal": lambda _: np.random.normal(),
    "python": lambda _: random.random(),
    "python gauss": lambda _: random.gauss(0, 1),
    "own": lambda m: torch.rand(2, generator=m.own).tolist(),
    "borrowed": lambda m: torch.randn(1, generator=m.inner.borrowed).tolist(),
    "new numpy": lambda m: m.several[0].normal(size=3).tolist(),
    "own python": lambda m: m.several[1].gauss(0, 1),
    "old numpy": lambda m: m.named["old"].normal(),
}


@given(
    before=st.lists(st.sampled_from(sorted(DRAWS)), max_size=4),
    after=st.lists(st.sampled_from(sorted(DRAWS)), max_size=6),
)
def test_draws_are_equal_after_restore(before, after):
    model = Noisy()
    generators = Generators({"": model})
    for name in before:
        DRAWS[name](model)
    state = generators.read()
    first = [DRAWS[name](model) for name in after]
    generators.restore(state)
    assert [DRAWS[name](model) for name in after] == first
    generators.restore(through_json(generators, state))
    assert [DRAWS[name](model) for name in after] == first


def through_json(generators, state):
    table = TensorTable()
    node = json.loads(json.dumps(generators.encode(state, table), allow_nan=False))
    storages, refs = table.export()
    assert {ref.role for ref in refs} == {"rng"}
    return Generators.decode(node, TensorLoader(refs, lambda n: storages[n].data))


def test_reading_draws_nothing():
    model = Noisy()
    generators = Generators({"": model})
    state = generators.read()
    first = [draw(model) for draw in DRAWS.values()]
    generators.restore(state)
    generators.read()
    generators.encode(generators.read(), TensorTable())
    assert [draw(model) for draw in DRAWS.values()] == first


def test_another_model_of_the_same_kind():
    one, other = Noisy(), Noisy()
    state = Generators({"net": one}).read()
    torch.rand(1, generator=other.own)
    other.several[0].normal()
    there = Generators({"net": other})
    there.restore(state)
    assert there.unmatched(state) == ()
    assert torch.rand(1, generator=one.own) == torch.rand(1, generator=other.own)
    assert one.several[0].normal() == other.several[0].normal()


def test_names_and_identity():
    generators = Generators({"net": Noisy()})
    assert generators.names == (
        "net:own",
        "net:several[0]",
        "net:several[1]",
        "net:named['old']",
        "net:inner.borrowed",
    )
    names = [entry[0] for entry in generators.read().objects]
    assert names[0] == ("net:own", "net:inner.borrowed")
    assert len(names) == 4


def test_a_generator_that_was_replaced_is_followed():
    model = Noisy()
    generators = Generators({"": model})
    model.own = torch.Generator().manual_seed(99)
    model.several.pop()
    state = generators.read()
    assert torch.equal(state.objects[0][2], model.own.get_state())
    assert not any(name == ":several[1]" for names, *_ in state.objects for name in names)


def test_what_does_not_exist_here_is_named():
    state = Generators({"": Noisy()}).read()
    bare = Generators({"": torch.nn.Linear(1, 1)})
    assert bare.unmatched(state) == (":own", ":several[0]", ":several[1]", ":named['old']")
    bare.restore(state)
    other = Noisy()
    other.several[0] = np.random.Generator(np.random.SFC64(1))
    there = Generators({"": other})
    assert there.unmatched(state) == (":several[0]",)
    there.restore(state)


@pytest.mark.parametrize("bits", BIT_GENERATORS.values(), ids=BIT_GENERATORS)
def test_other_global_bit_generators(bits):
    generators = Generators({})
    original = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(bits(7))
        np.random.normal()
        state = generators.read()
        first = [np.random.normal() for _ in range(3)]
        np.random.set_bit_generator(original)
        generators.restore(through_json(generators, state))
        assert [np.random.normal() for _ in range(3)] == first
    finally:
        np.random.set_bit_generator(original)


def test_a_state_names_no_code():
    state = Generators({}).read()
    table = TensorTable()
    node = Generators({}).encode(state, table)
    storages, refs = table.export()
    loader = TensorLoader(refs, lambda n: storages[n].data)
    node["numpy"] = {"$": "object", "class": "os:system"}
    with pytest.raises(CodeMissingError):
        Generators.decode(node, loader)
    with pytest.raises(CorruptIncidentError):
        Generators.decode({"python": 3}, loader)


def test_bytes_are_counted():
    bare, noisy = Generators({}).read(), Generators({"": Noisy()}).read()
    assert 10_000 < bare.nbytes < noisy.nbytes < 500_000


class Evasive:
    @property
    def __class__(self):
        raise RuntimeError


def test_odd_attributes_are_passed_over():
    model = torch.nn.Linear(1, 1)
    vars(model)["odd"] = Evasive()
    model.more = {1: Evasive(), 2: random.Random(1)}
    assert Generators({"": model}).names == (":more[2]",)
