import json

import jsonschema
import pytest

import schemas
from flightrec.incident.manifest import from_json, to_json
from flightrec.incident.schema import SCHEMA
from flightrec.incident.validate import compile_schema
from tests.incident.captures import CALL, SEGMENT, STEP, manifest_of

check = compile_schema(SCHEMA)
standard = jsonschema.Draft202012Validator(SCHEMA)

NAN = {"$": "float", "v": "nan"}
FULL = manifest_of(
    "id-1",
    sites=["encoder:output:#0"],
    storages=[{"bytes": 4, "hash": "0" * 32, "dtype": "float32"}],
    tensors=[
        {
            "storage": 0,
            "dtype": "float32",
            "offset": 0,
            "size": [1],
            "stride": [1],
            "object": 0,
            "requires_grad": True,
            "device": "cpu",
            "role": "param",
            "name": "encoder.weight",
            "reliable": True,
        }
    ],
    findings=[
        {
            "detector": "nonfinite",
            "site": None,
            "step": 3,
            "value": NAN,
            "limit": 1,
            "kind": "nan",
            "level": "capture",
            "text": "loss is nan",
        }
    ],
    code={
        "repository": None,
        "commit": "0123abc",
        "dirty": True,
        "diff": "-a\n+b",
        "diff_truncated": False,
    },
    step_fn={"name": "train:step", "source": "def step(model, batch): ..."},
    optimizers=[{"name": "", "class": "torch.optim:SGD", "lr": [0.1], "parameters": [["w"]]}],
    model={
        "roots": {"$": "roots"},
        "sources": [{"name": "m:Net", "file": "m.py", "line": 3, "text": "class Net: ..."}],
    },
    controls=[SEGMENT],
    steps=[STEP, {**STEP, "loss": NAN}],
    not_captured=[{"what": "weights", "why": "asked"}],
    dropped={"device_bytes": 2},
    notes=["a note"],
    segment={
        **SEGMENT,
        "batch": {"$": "tensor", "i": 0},
        "calls": [
            {
                **CALL,
                "state": {"buffers": {":bn.mean": 0}, "attributes": {":bn": {"n": 3, "x": NAN}}},
                "autocast": [
                    {"device": "cpu", "dtype": "bfloat16", "enabled": True, "cache": True}
                ],
                "outputs": [
                    {
                        "leaf": "['x']",
                        "dtype": "float32",
                        "shape": [1],
                        "hash": "0" * 32,
                        "tensor": 0,
                        "changed": False,
                        "requires_grad": True,
                    }
                ],
            }
        ],
        "backwards": [
            {
                "number": 0,
                "after_call": 1,
                "create_graph": False,
                "gradients": [{"call": 0, "leaf": "", "tensor": 0}],
            }
        ],
        "loss": {"tensor": 0, "after_call": 1},
        "gradients": [{"parameter": ":w", "hash": "0" * 32, "tensor": None}],
        "gradients_unavailable": "a reason",
        "exception": {
            "type": "ValueError",
            "message": "no",
            "traceback": [{"file": "a.py", "line": 1, "function": "f", "code": "raise"}],
        },
    },
)


def test_the_schema_itself_is_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert schemas.load("incident.schema.json") == SCHEMA


def test_a_full_manifest_fits():
    assert check(FULL) is None
    standard.validate(FULL)
    assert from_json(to_json(FULL)) == FULL


def places(value, path=()):
    """Yield the path of every value inside."""
    yield path
    if isinstance(value, dict):
        for name, child in value.items():
            yield from places(child, (*path, name))
    elif isinstance(value, list):
        for n, child in enumerate(value):
            yield from places(child, (*path, n))


def changed(path, change):
    """Return FULL with the value at `path` given to `change(holder, key)`."""
    copy = json.loads(json.dumps(FULL))
    holder = copy
    for part in path[:-1]:
        holder = holder[part]
    change(holder, path[-1])
    return copy


def replace(value):
    return lambda holder, key: holder.__setitem__(key, value)


def add(holder, key):
    if isinstance(holder[key], dict):
        holder[key]["unheard of"] = {}


PATHS = [path for path in places(FULL) if path]
STRANGE = [None, True, -1, 2**63, 0.5, "", "text", [], [[]], {}, {"$": "tensor"}, {"$": 3}]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_it_agrees_with_jsonschema_on_any_change(path):
    variants = [changed(path, replace(value)) for value in STRANGE]
    variants.append(changed(path, lambda holder, key: holder.pop(key)))
    variants.append(changed(path, add))
    for variant in variants:
        assert (check(variant) is None) == standard.is_valid(variant), variant


@pytest.mark.parametrize(
    "node",
    [
        {"$": "tensor", "i": -1},
        {"$": "tensor", "i": True},
        {"$": "float", "v": "NaN"},
        {"$": "float", "v": "nan", "more": 1},
        {"$": ""},
        {"$": "Tensor"},
        {"v": 1},
        [],
    ],
)
def test_nodes_that_are_none(node):
    problem = check({**FULL, "segment": {**SEGMENT, "batch": node}})
    assert problem is not None
    assert problem.startswith(".segment.batch")


@pytest.mark.parametrize(
    "node",
    [
        None,
        True,
        3,
        10**30,
        0.5,
        "x",
        NAN,
        {"$": "tensor", "i": 0, "leaf": False},
        {"$": "list", "items": [1, [2]]},
    ],
)
def test_nodes(node):
    assert check({**FULL, "segment": {**SEGMENT, "batch": node}}) is None
