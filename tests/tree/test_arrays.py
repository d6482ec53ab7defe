"""NumPy arrays, scalars and dtypes, to the byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from flightrec.errors import CorruptIncidentError
from flightrec.tree import Decoder, Encoder, TensorTable

dtypes = (
    npst.scalar_dtypes()
    | npst.unicode_string_dtypes(max_len=4)
    | npst.byte_string_dtypes(max_len=4)
)


@given(value=npst.arrays(dtype=dtypes, shape=npst.array_shapes(min_dims=0, min_side=0, max_side=3)))
def test_round_trip(new_travel, value):
    back = new_travel()(value)
    assert type(back) is np.ndarray
    assert (back.dtype, back.shape) == (value.dtype, value.shape)
    assert back.tobytes() == value.tobytes()


@given(dtype=dtypes, data=st.data())
def test_scalars(new_travel, dtype, data):
    value = data.draw(npst.arrays(dtype=dtype, shape=(1,)))[0]
    back = new_travel()(value)
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert back.tobytes() == value.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24).reshape(2, 3, 4)[:, ::-1, ::2],
        np.arange(6.0).reshape(2, 3).T,
        np.arange(4, dtype=">i4"),
        np.zeros(2, dtype=[("a", "<f4"), ("b", [("c", "u1", (2, 3))])]),
        np.zeros((0, 3)),
        np.array(["2025-01-01"], dtype="M8[D]"),
        np.longdouble(np.arange(3)),
    ],
    ids=["F", "strided", "transposed", "endian", "structured", "empty", "dates", "long double"],
)
def test_layouts(travel, value):
    back = travel(value)
    assert back.dtype == value.dtype
    assert np.array_equal(back, value)
    assert back.flags.f_contiguous == value.flags.f_contiguous or not value.flags.forc
    assert back.flags.writeable


def test_objects_and_flags(travel):
    things = np.empty((2, 2), dtype=object)
    things[0, 0] = things
    things[1, 1] = [1]
    locked = np.arange(3)
    locked.flags.writeable = False
    back = travel({"things": things, "locked": locked, "again": locked})
    assert back["things"][0, 0] is back["things"]
    assert back["things"][1, 1] == [1]
    assert not back["locked"].flags.writeable
    assert back["locked"] is back["again"]


def test_values_at_the_time(travel):
    value = np.arange(3)
    node = travel.encoder.encode(value)
    value += 100
    travel.table.freeze()
    storages, _ = travel.table.export()
    assert storages[0].data.view(np.int64).tolist() == [0, 1, 2]
    assert node["shape"] == [3]


def test_by_reference_where_the_table_does_not_copy():
    table = TensorTable(copy=False)
    value = np.arange(1000)
    Encoder(table).encode([value, value[::2], value.reshape(10, 100).T])
    table.freeze()
    value[0] = 7
    _, refs = table.export()
    assert [ref.reliable for ref in refs] == [False, True, False]


def test_subclasses_are_said(travel):
    masked = np.ma.masked_array([1.0], mask=[True])
    travel([masked, np.zeros(1, dtype=[("a", object)])])
    assert travel.why == ["a subclass of numpy.ndarray", "a structured array that holds objects"]


def test_dtypes(travel):
    value = [np.dtype("f4"), np.dtype(object), np.dtype([("a", "i4")]), np.dtype("U3")]
    assert travel(value) == value


@pytest.mark.parametrize(
    "node",
    [
        {"$": "ndarray", "dtype": "|O", "shape": [1], "order": "C", "writeable": True},
        {"$": "ndarray", "dtype": "<f8", "shape": [1], "order": "C", "writeable": True},
        {"$": "ndarray", "dtype": "nonsense", "shape": [1], "order": "C", "writeable": True},
        {"$": "ndarray", "shape": [3], "v": [1]},
        {"$": "npscalar", "dtype": "|O", "v": "AAAA"},
    ],
    ids=["objects", "no bytes", "dtype", "count", "scalar object"],
)
def test_malformed(node):
    with pytest.raises(CorruptIncidentError):
        Decoder(None, None).decode(node)
