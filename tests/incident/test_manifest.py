import copy
import json

import numpy as np
import pytest

from flightrec.errors import CorruptIncidentError
from flightrec.incident import manifest as module
from flightrec.incident.layout import MAX_JSON_DEPTH
from flightrec.incident.manifest import check, from_json, tensor_entry, tensor_refs, to_json
from flightrec.types import TensorRef
from tests.incident.captures import SEGMENT, manifest_of, ref_of

REF = tensor_entry(ref_of(0, np.zeros((3, 4), "f4")))


def whole(**changed):
    return manifest_of(
        "id-1",
        **{
            "sites": [],
            "storages": [{"bytes": 48, "hash": "0" * 32, "dtype": "float32"}],
            "tensors": [REF],
            **changed,
        },
    )


def tensor(**changed):
    return whole(tensors=[{**REF, **changed}])


def test_a_manifest_survives_json():
    one = whole(notes=["\u00e4 \udcff \u2028 </script>"], options={"x": 0.1, "y": -0.0})
    text = to_json(one)
    assert text.isascii()
    assert from_json(text) == one
    assert str(from_json(text)["options"]["y"]) == "-0.0"
    check(from_json(text))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bare_number_that_is_not_finite_is_not_written(value):
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(whole(options={"x": value}))


def test_references_survive():
    refs = [
        TensorRef(storage=-1, dtype="bool", offset=0, size=(), stride=(), object=7, device="meta"),
        TensorRef(
            storage=0,
            dtype="float32",
            offset=3,
            size=(2, 2),
            stride=(0, 1),
            object=1,
            requires_grad=True,
            role="param",
            name="a.b",
            reliable=False,
        ),
    ]
    text = to_json(whole(tensors=[tensor_entry(ref) for ref in refs]))
    assert tensor_refs(from_json(text)) == refs


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nul",
        b"[]",
        b"3",
        b'{"a":',
        b"\xff{}",
        b"{} {}",
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 990 + b"]" * 990 + b"}",
    ],
)
def test_what_is_no_manifest(text):
    with pytest.raises(CorruptIncidentError, match="manifest") as caught:
        check(from_json(text))
    assert "\n" not in str(caught.value)


def test_too_many_bytes_and_too_many_values(monkeypatch):
    monkeypatch.setattr(module, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(CorruptIncidentError, match="a manifest of 101 bytes"):
        from_json(b" " * 101)
    monkeypatch.setattr(module, "MAX_JSON_VALUES", 10)
    with pytest.raises(CorruptIncidentError, match="a manifest of 11 values"):
        from_json(b'{"a":[' + b"1," * 9 + b"1]}")


def nested(depth):
    value = {"$": "list", "items": []}
    for _ in range((depth - 4) // 2):
        value = {"$": "list", "items": [value]}
    return whole(segment={**SEGMENT, "batch": value})


def test_the_depth_is_bounded():
    check(nested(MAX_JSON_DEPTH - 2))
    with pytest.raises(CorruptIncidentError, match=f"nested more than {MAX_JSON_DEPTH} deep"):
        check(nested(MAX_JSON_DEPTH + 2))


def test_numbers_of_json_that_are_not_finite():
    text = to_json(whole(options={"x": 7})).replace(b'"x":7', b'"x":1e999')
    with pytest.raises(CorruptIncidentError, match="not finite"):
        check(from_json(text))


def test_numbers_that_are_no_float():
    step = {"step": 1, "loss": 10**400, "grad_norm": None, "lr": None, "updated": True}
    step |= {"seconds": 0, "times": {}, "scalars": {}}
    with pytest.raises(CorruptIncidentError, match=r"wrong at steps\[0\].loss"):
        check(whole(steps=[step]))


GOOD = [
    whole(),
    tensor(offset=0, size=[], stride=[]),
    tensor(offset=11, size=[1], stride=[2**63 - 1]),
    tensor(offset=12, size=[0, 5], stride=[5, 1]),
    tensor(offset=0, size=[2**20, 4], stride=[0, 3]),
    tensor(size=[4, 3], stride=[1, 4]),
    tensor(dtype="bool", offset=47, size=[1], stride=[1]),
    tensor(dtype="complex64", offset=0, size=[6], stride=[1]),
    tensor(storage=-1, size=[0], stride=[1]),
    tensor(storage=-1, size=[2**40, 2**20], stride=[2**20, 1], device="meta"),
    whole(storages=[{"bytes": 48, "hash": "0" * 32, "dtype": "float32"}] * 3),
]

BAD = [
    (tensor(offset=1), "tensor 0 reaches outside its storage of 48 bytes"),
    (tensor(offset=-1), r"wrong at tensors\[0\].offset"),
    (tensor(size=[3, 5]), "tensor 0 reaches outside"),
    (tensor(stride=[4, 2]), "tensor 0 reaches outside"),
    (tensor(stride=[-4, 1]), r"wrong at tensors\[0\].stride\[0\]"),
    (tensor(stride=[2**62, 2**62]), "tensor 0 reaches outside"),
    (tensor(stride=[2**64, 0]), r"wrong at tensors\[0\].stride\[0\]"),
    (tensor(size=[2**33, 2**32], stride=[0, 0]), "tensor 0 declares 147573952589676412928 bytes"),
    (tensor(size=[3]), "tensor 0 has 1 dimensions and 2 strides"),
    (tensor(size=[1] * 33, stride=[1] * 33), r"33 items, at most 32 are allowed"),
    (tensor(dtype="float64"), "tensor 0 reaches outside"),
    (tensor(dtype="float31"), r"wrong at tensors\[0\].dtype"),
    (tensor(dtype="torch.float32"), r"wrong at tensors\[0\].dtype"),
    (tensor(storage=1), "tensor 0 names storage 1 of 1"),
    (tensor(storage=-2), r"wrong at tensors\[0\].storage"),
    (tensor(offset=13, size=[0], stride=[1]), "tensor 0 reaches outside"),
    (tensor(storage=-1, size=[2**40, 2**40], stride=[0, 0]), "tensor 0 has an impossible size"),
    (whole(storages=[{"bytes": 2**40, "hash": "0" * 32, "dtype": "bool"}]), "1099511627776 bytes"),
    (
        whole(
            storages=[
                {"bytes": 48, "hash": "0" * 32, "dtype": "bool"},
                {"bytes": 47, "hash": "0" * 32, "dtype": "bool"},
            ]
        ),
        "storage 1 has the hash of one of another size",
    ),
    (whole(id="../../etc/passwd"), "wrong at id"),
    (whole(run={**whole()["run"], "id": "a/b"}), "wrong at run.id"),
    (whole(created="yesterday"), "yesterday"),
    (whole(created="2026-13-01T00:00:00+00:00"), "month"),
    (whole(site="nowhere"), "module:kind:leaf#call"),
    (whole(sites=["a:output:#\u00b2"]), "manifest is wrong"),
    (whole(segment={**SEGMENT, "batch": {"$": "tensor", "i": 1}}), "there is no tensor 1"),
    (whole(segment={**SEGMENT, "loss": {"tensor": 5, "after_call": 0}}), "there is no tensor 5"),
    (
        whole(segment={**SEGMENT, "batch": {"$": "list", "items": [{"$": "tensor", "i": -1}]}}),
        "a tensor in its manifest has no index",
    ),
    (
        whole(segment={**SEGMENT, "batch": {"$": "list", "items": [{"$": "tensor"}]}}),
        "a tensor in its manifest has no index",
    ),
]


@pytest.mark.parametrize("good", GOOD, ids=range(len(GOOD)))
def test_manifests_that_pass(good):
    before = copy.deepcopy(good)
    check(good)
    assert good == before


@pytest.mark.parametrize(("bad", "why"), BAD, ids=range(len(BAD)))
def test_manifests_that_do_not(bad, why):
    with pytest.raises(CorruptIncidentError, match=why):
        check(json.loads(json.dumps(bad)))


def test_every_place_of_an_index_is_looked_at():
    found = json.dumps(module.SCHEMA["$defs"])
    assert found.count('"tensor": {') == 5  # loss, outputs, gradients twice, and the definition


def test_the_limit_of_bytes_can_be_set():
    check(whole(), max_bytes=48)
    with pytest.raises(CorruptIncidentError, match="declares 48 bytes of tensors, the most are 47"):
        check(whole(), max_bytes=47)
