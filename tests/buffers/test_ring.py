from hypothesis import given
from hypothesis import strategies as st

from flightrec.buffers.ring import HISTORY, Ring, StepEntry
from flightrec.tree import TensorTable
from flightrec.types import StepRecord


def entry(number, size):
    made = StepEntry(step=number, copies=TensorTable(), rng=None, state_bytes=size)
    made.record = StepRecord(step=number)
    return made


@given(
    sizes=st.lists(st.integers(0, 50), max_size=40),
    steps=st.integers(1, 8),
    limit=st.integers(50, 200),
)
def test_like_a_plain_list_of_the_newest_that_fit(sizes, steps, limit):
    ring, kept, dropped = Ring(steps=steps, max_bytes=limit), [], 0
    for number, size in enumerate(sizes):
        dropped += ring.reserve(size)
        while kept and sum(s for _, s in kept) + size > limit:
            kept.pop(0)
        ring.push(entry(number, size))
        kept = [*kept, (number, size)][-steps:]
        assert [(e.step, e.nbytes) for e in ring] == kept
        assert ring.nbytes == sum(s for _, s in kept) <= limit
    assert len(ring) == len(kept)
    assert dropped <= len(sizes)


def test_numbers_are_kept_longer_than_inputs():
    ring = Ring(steps=2, max_bytes=10)
    for number in range(HISTORY + 5):
        ring.reserve(1)
        ring.push(entry(number, 1))
    assert len(ring) == 2
    assert [record.step for record in ring.history] == list(range(5, HISTORY + 5))
