"""The encoder itself: memory, hooks, faults of ours."""

import sys
from typing import ClassVar

import pytest
import torch

from flightrec.guard import FAULTS
from flightrec.tree import Decoder, Encoder, TensorTable, scalars
from flightrec.tree.encoder import MAX_NOTES


class Thing:
    pass


def rude(encoder, value, name):
    raise ValueError("the value's own code")


class Faulty(Encoder):
    writers: ClassVar = {**Encoder.writers, Thing: scalars.write_timedelta}


class Rude(Encoder):
    writers: ClassVar = {**Encoder.writers, Thing: rude}


class Modules(Encoder):
    def encode_module(self, module, name=""):
        return {"$": "module", "name": type(module).__name__}


class Reads(Decoder):
    readers: ClassVar = {**Decoder.readers, "module": lambda _, node: node["name"]}


def test_our_faults_are_raised_in_tests_and_counted_in_runs(monkeypatch):
    with pytest.raises(AttributeError, match="days"):
        Faulty(TensorTable()).encode([Thing()])
    monkeypatch.setenv("FLIGHTREC_STRICT", "0")
    FAULTS.clear()
    encoder = Faulty(TensorTable())
    node = encoder.encode([Thing(), 1])
    assert node["v"][0]["why"] == "AttributeError while it was read"
    assert node["v"][1] == 1
    assert FAULTS["tree"] == 1
    FAULTS.clear()


def test_code_of_the_value_is_no_fault_of_ours():
    FAULTS.clear()
    assert Rude(TensorTable()).encode(Thing())["why"] == "ValueError while it was read"
    assert FAULTS["tree"] == 0


class Meta(type):
    def __eq__(cls, other):
        raise RuntimeError


class Unhashable(metaclass=Meta):
    pass


def test_a_class_that_cannot_be_looked_up():
    encoder = Encoder(TensorTable())
    node = encoder.encode([Unhashable(), 1])
    assert node["v"][0]["$"] == "missing"
    assert node["v"][1] == 1


def test_subclasses_say_what_a_module_is():
    node = Modules(TensorTable()).encode([torch.nn.Linear(1, 1)])
    assert Reads(None, None).decode(node) == ["Linear"]


def test_a_stack_that_is_nearly_full(travel):
    deep = []
    for _ in range(80):
        deep = [deep]

    def down(left):
        return down(left - 1) if left else travel.encoder.encode([deep, 1])

    room = sys.getrecursionlimit() - len_of_stack()
    node = down(room - 60)
    assert node["v"][1] == 1
    assert travel.why == ["nested too deeply for the stack that was left"]
    Decoder(None, None).decode(node)


def len_of_stack():
    frame, depth = sys._getframe(), 0
    while frame:
        frame, depth = frame.f_back, depth + 1
    return depth


def test_the_list_of_what_is_missing_is_bounded(travel):
    travel.encoder.encode([lambda: 0 for _ in range(MAX_NOTES + 50)])
    assert len(travel.encoder.not_captured) == MAX_NOTES + 1
    assert travel.encoder.not_captured[-1]["what"] == "more values"


def test_the_same_missing_object_is_listed_once(travel):
    lost = lambda: 0  # noqa: E731
    back = travel([lost, lost])
    assert len(travel.why) == 1
    assert repr(back[0]) == repr(back[1])


def test_deterministic(new_travel):
    value = {"a": [torch.ones(1), {3, 1, 2}], "b": (Thing(),)}
    assert new_travel().encoder.encode(value) == new_travel().encoder.encode(value)
