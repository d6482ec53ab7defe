"""Values without parts, each with its exact type."""

import datetime
import decimal
import fractions
import math
import pathlib
import re
import uuid
import zoneinfo

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=())),
    st.binary(max_size=40),
    st.complex_numbers(),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    if isinstance(a, complex) and isinstance(b, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    return a == b


@given(value=plain)
def test_round_trip(new_travel, value):
    travel = new_travel()
    back = travel(value)
    assert type(back) is type(value)
    assert same(back, value)
    assert travel.encoder.not_captured == []


@pytest.mark.parametrize("value", [None, True, 3, -(2**63), 2**63 - 1, 0.5, -0.0, "text", "\0é"])
def test_plain_json_stays_plain(travel, value):
    assert travel.encoder.encode(value) is value


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 1 << 40000], ids=["63", "-64", "long"])
def test_large_integers(travel, value):
    assert travel(value) == value
    assert travel.node["$"] == "int"


@pytest.mark.parametrize(
    "value",
    [
        ...,
        NotImplemented,
        torch.float32,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.qint8,
        torch.strided,
        torch.sparse_csr,
        torch.channels_last,
        torch.per_channel_affine,
        torch.device("cuda", 1),
        torch.device("meta"),
        datetime.UTC,
        datetime.timezone(datetime.timedelta(hours=-3, seconds=7)),
        datetime.datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=datetime.UTC),
        decimal.Decimal("NaN123"),
        decimal.Decimal("1.10"),
        fractions.Fraction(1, 3),
        uuid.UUID(int=5),
        pathlib.PurePosixPath("a/b"),
        pathlib.PureWindowsPath("c:/x"),
        pathlib.Path("x"),
        bytearray(b"abc"),
        re.compile("a+", re.IGNORECASE),
        re.compile(b"a"),
    ],
    ids=repr,
)
def test_other_values(travel, value):
    back = travel(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    assert travel.why == []


def test_zones_by_name(travel):
    moment = datetime.datetime(2025, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
    assert travel(moment).tzinfo.key == "UTC"


def test_long_bytes_become_a_tensor(travel):
    value = bytes(range(256)) * 20
    assert travel([value, bytearray(value)]) == [value, bytearray(value)]
    assert travel.node["v"][0]["t"]["$"] == "tensor"


def test_text_has_a_budget(new_travel):
    travel = new_travel()
    travel.encoder.text_left = 3000
    node = travel.encoder.encode(["a" * 2000, "b" * 2000, b"c" * 2000, "d"], "x")
    assert node["v"][0] == "a" * 2000
    assert [node["v"][i]["$"] for i in (1, 2)] == ["missing", "missing"]
    assert node["v"][3] == "d"
    assert "2000 bytes of text, 1000 left" in travel.why[0]
