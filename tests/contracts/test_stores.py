"""Every kind of store: its name is its scheme, and it keeps the contract."""

import pytest

from flightrec import protocols
from flightrec.registry import Registry
from flightrec.stores import Store, open_store
from flightrec.testing.store_contract import StoreContract

STORES = Registry("stores").names()

REMOTE: frozenset[str] = frozenset()
"""Stores that need a server; they have a test file of their own that brings one."""


def test_those_of_the_first_issue_are_there():
    assert {"local", "memory"} <= set(STORES)


@pytest.mark.parametrize("name", STORES)
def test_the_scheme_of_a_url_picks_the_store(name, tmp_path):
    store = open_store(f"{name}://{tmp_path}/{name}")
    assert isinstance(store, Store)
    assert isinstance(store, protocols.Store)
    assert type(store).__module__ == f"flightrec.stores.{name}"
    assert isinstance(store.supports_writes, bool)
    assert isinstance(store.supports_deletes, bool)


@pytest.mark.parametrize("name", STORES)
def test_a_store_says_what_it_is(name):
    cls = type(open_store(f"{name}://somewhere"))
    assert (cls.__doc__ or "").strip()


@pytest.fixture(params=sorted(set(STORES) - REMOTE))
def kind(request):
    """Each kind of store that needs no server."""
    return request.param


class TestEveryStore(StoreContract):
    @pytest.fixture
    def store(self, kind, tmp_path):
        return open_store(f"{kind}://{tmp_path}/store")
