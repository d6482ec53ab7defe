"""A way through JSON and back, as an incident goes, with a resolver that trusts everything."""

import importlib
import json
from functools import reduce

import pytest

from flightrec.tree import Decoder, Encoder, TensorLoader, TensorTable


class Open:
    """Imports whatever is named."""

    def resolve_class(self, module, qualname):
        return reduce(getattr, qualname.split("."), importlib.import_module(module))

    resolve_function = resolve_class


class Travel:
    """Encodes, freezes, dumps, loads and decodes; what was on the way can be looked at."""

    def __init__(self):
        self.table = TensorTable()
        self.encoder = Encoder(self.table)
        self.node = None

    def __call__(self, value, name="value", **modules):
        self.node = self.encoder.encode(value, name)
        self.table.freeze()
        storages, self.refs = self.table.export()
        loader = TensorLoader(self.refs, lambda n: storages[n].data)
        text = json.dumps(self.node, allow_nan=False)
        return Decoder(loader, Open(), **modules).decode(json.loads(text))

    @property
    def why(self):
        return [note["why"] for note in self.encoder.not_captured]


@pytest.fixture(autouse=True)
def _strict(monkeypatch):
    monkeypatch.setenv("FLIGHTREC_STRICT", "1")


@pytest.fixture
def travel():
    return Travel()


@pytest.fixture(scope="session")
def new_travel():
    return Travel


@pytest.fixture
def resolver():
    return Open()
