"""The folder store and the memory store answer alike, whatever is done to them."""

import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flightrec.catalog import files
from flightrec.stores import open_store
from flightrec.testing.captures import make_capture
from flightrec.testing.store_contract import make_verdict

QUERIES = (
    "SELECT id, kind, run, site FROM incidents ORDER BY id",
    "SELECT incident_id, step, site, nan_count, absmax FROM stats ORDER BY ALL",
    "SELECT run, incidents, kinds FROM runs ORDER BY run",
    "SELECT incident_id, status, seconds FROM verdicts ORDER BY ALL",
)


class Stores(RuleBasedStateMachine):
    """Puts, deletes, folds and judges in both stores at once."""

    @initialize()
    def make(self):
        self.folder = tempfile.TemporaryDirectory()
        self.local = open_store(self.folder.name)
        self.memory = open_store(f"memory://{self.folder.name}")
        self.count = 0

    @rule(run=st.sampled_from(["run-a", "run/b"]), kind=st.sampled_from(["nan", "zeroed"]))
    def put(self, run, kind):
        self.count += 1
        capture = make_capture(self.count, run=run.replace("/", "_"), kind=kind)
        for store in (self.local, self.memory):
            store.put(capture)

    @precondition(lambda self: self.local.ids())
    @rule(data=st.data())
    def delete(self, data):
        id = data.draw(st.sampled_from(self.local.ids()))
        for store in (self.local, self.memory):
            store.delete(id)

    @precondition(lambda self: self.local.ids())
    @rule(data=st.data(), seconds=st.floats(0, 9))
    def judge(self, data, seconds):
        id = data.draw(st.sampled_from(self.local.ids()))
        for store in (self.local, self.memory):
            store.add_verdict(make_verdict(id, seconds=seconds), command="replay")

    @rule()
    def compact(self):
        self.local.compact()

    @rule()
    def repair(self):
        assert self.local.repair() == []

    @invariant()
    def both_answer_alike(self):
        if not hasattr(self, "local"):
            return
        assert self.local.ids() == self.memory.ids()
        with self.local.connect() as local, self.memory.connect() as memory:
            for query in QUERIES:
                assert local.execute(query).fetchall() == memory.execute(query).fetchall()

    def teardown(self):
        if hasattr(self, "local"):
            assert self.local.problems() == []
            self.memory.delete_many(self.memory.ids())
            self.folder.cleanup()


@pytest.fixture(autouse=True)
def _fold_early(monkeypatch):
    monkeypatch.setattr(files, "FOLD_AT", 3)


class TestStores(Stores.TestCase):
    settings = settings(
        max_examples=4,
        stateful_step_count=8,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
