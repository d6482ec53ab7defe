"""Objects without their constructors, and objects that fight back."""

import abc
import dataclasses
import io
import json
import logging
import socket
import threading
import types
import weakref
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from flightrec.errors import CannotRebuildError, CorruptIncidentError
from flightrec.tree import Decoder, Encoder, Placeholder, TensorTable
from flightrec.tree.objects import state_of, why_opaque

T = TypeVar("T")


@dataclass
class Plain:
    x: object
    y: list = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    x: object
    y: int = 0


@dataclass(frozen=True)
class Checked:
    x: int

    def __post_init__(self):
        if self.x < 0:
            raise ValueError("negative")


class Slotted:
    __slots__ = ("__private", "a", "never")

    def __init__(self):
        self.a = 1
        self.__private = 2


class Below(Slotted):
    def __init__(self):
        super().__init__()
        self.b = 3


class Box(Generic[T], abc.ABC):
    def __init__(self, held: T):
        self.held = held


class Hostile:
    """Everything that can raise does."""

    def __init__(self):
        object.__setattr__(self, "tensor", torch.ones(2))
        object.__setattr__(self, "list", [self])

    def _no(self, *args):
        raise RuntimeError("touched")

    __getattr__ = __getattribute__ = __eq__ = __hash__ = __len__ = __repr__ = __str__ = _no
    __iter__ = __bool__ = __call__ = __setattr__ = __reduce__ = __getstate__ = __deepcopy__ = _no
    __class__ = property(_no)
    __format__ = __getitem__ = __contains__ = __reduce_ex__ = __setstate__ = __copy__ = _no


class Deleted:
    def __del__(self):
        raise AssertionError


class Singleton:
    def __new__(cls):
        raise AssertionError


class Stream(io.BytesIO):
    pass


class Local(threading.local):
    pass


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 0


def test_dataclasses(travel):
    value = [Plain(1, [2]), Frozen(torch.ones(1), 4), Checked(3)]
    back = travel(value)
    assert back[0] == Plain(1, [2])
    assert back[1].y == 4
    assert back[1].x.item() == 1
    assert back[2] == Checked(3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        back[1].y = 5


def test_no_constructor_runs(travel):
    node = json.loads(json.dumps(travel.encoder.encode(Checked(3))).replace("3", "-3"))
    back = Decoder(None, types.SimpleNamespace(resolve_class=lambda *_: Checked)).decode(node)
    assert back.x == -3


def test_slots_and_private_names(travel):
    back = travel(Below())
    assert (back.a, back.b, back._Slotted__private) == (1, 3, 2)
    assert not hasattr(back, "never")


def test_generic_and_abstract(travel):
    assert travel(Box([1])).held == [1]


def test_packed_sequence(travel):
    packed = pack_sequence([torch.ones(3, 2), torch.zeros(1, 2)])
    back = travel(packed)
    assert type(back) is type(packed)
    assert torch.equal(back.data, packed.data)
    assert torch.equal(back.batch_sizes, packed.batch_sizes)


def test_cycles_through_attributes(travel):
    value = Plain(None)
    value.y.append(value)
    value.x = (value,)
    back = travel(value)
    assert back.y[0] is back
    assert back.x[0] is back


def test_hostile_objects_are_read_and_made_in_silence(travel):
    hostile = Hostile()
    back = travel([hostile, hostile, {"k": hostile}])
    assert type(back[0]) is Hostile
    assert back[0] is back[1] is back[2]["k"]
    held = object.__getattribute__(back[0], "__dict__")
    assert held["tensor"].tolist() == [1, 1]
    assert held["list"][0] is back[0]


def test_what_cannot_be_made_again(travel, tmp_path):
    class Inside:
        pass

    with (
        (tmp_path / "f").open("w") as file,
        socket.socket() as connection,
        threading.Lock() as _,
    ):
        values = {
            "an open file": file,
            "a lock": threading.Lock(),
            "a thread or a lock": threading.Event(),
            "a logger": logging.getLogger("x"),
            "a connection": connection,
            "a generator, which can be read only once": (i for i in ()),
            "a Python module": json,
            "its class cannot be imported under its own name": Inside(),
            "its class has a __del__, which an incident must never run": Deleted.__new__(Deleted),
            "a weak reference": weakref.ref(Plain),
            "a loader or a dataset": Data(),
            "an exception": ValueError("x"),
            "an optimizer or a schedule": object.__new__(torch.optim.SGD),
            "dict_keyiterator keeps its state where Python cannot see it": iter({}),
            "a view of memory": memoryview(b""),
        }
        Deleted.__del__ = lambda self: None
        back = travel(values)
    assert travel.why == list(values)
    for key, held in back.items():
        assert type(held) is Placeholder, key
        with pytest.raises(CannotRebuildError, match="value"):
            held.anything()
    assert travel.encoder.not_captured[0]["what"] == "value['an open file']: _io.TextIOWrapper"


def test_classes_with_state_in_c():
    assert "Python cannot see" in why_opaque(Stream)
    assert why_opaque(Local) == "a lock"
    assert why_opaque(Plain) is None
    assert why_opaque(Singleton) is None


def test_own_new_is_not_called(travel):
    value = object.__new__(Singleton)
    value.x = 1
    assert travel(value).x == 1


def test_state_of_sees_what_is_there():
    held, slots = state_of(Below())
    assert dict(held) == {"b": 3}
    assert dict(slots) == {"a": 1, "_Slotted__private": 2}


def test_a_class_that_changed(travel):
    node = travel.encoder.encode(Slotted())

    def decode(kind):
        Decoder(None, types.SimpleNamespace(resolve_class=lambda *_: kind)).decode(node)

    with pytest.raises(CannotRebuildError, match="no slot"):
        decode(Plain)
    with pytest.raises(CannotRebuildError, match="no longer"):
        decode(Stream)
    node["of"] = "dict"
    node["v"] = []
    with pytest.raises(CannotRebuildError, match="no longer"):
        decode(Plain)


def test_an_object_grown_while_read_is_still_read():
    value = Plain(1)
    value.__dict__.update({f"f{i}": i for i in range(10)})
    encoder = Encoder(TensorTable())
    node = encoder.encode(value)
    assert len(node["state"]) == 12


def test_state_for_something_without_attributes(resolver):
    node = {"$": "object", "class": "builtins:object", "state": [["a", 1]]}
    with pytest.raises(CorruptIncidentError):
        Decoder(None, resolver).decode(node)
