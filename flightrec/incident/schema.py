"""The JSON Schema of a manifest, as data; scripts/schemas writes it to schemas/.

Objects that the recorder fills are closed: each key is listed and must be there. Open are what a
machine or a user names (`environment`, `options`, scalars) and the nodes of `flightrec.tree`.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from flightrec.incident.layout import DTYPES, ID_PATTERN, MAX_DIMENSIONS
from flightrec.incident.migrate import FORMAT

Schema = dict[str, Any]

LARGEST = 2**63 - 1
"""Whole numbers fit into 64 bits."""


def _closed(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _tagged(tag: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {"$": {"const": tag}, **properties},
        "required": ["$", *properties],
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [{"type": "null"}, schema]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


TEXT: Final[Schema] = {"type": "string"}
YES_NO: Final[Schema] = {"type": "boolean"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": -LARGEST, "maximum": LARGEST}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": LARGEST}
INDEX: Final = COUNT
OPEN: Final[Schema] = {"type": "object"}
HASH: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
NUMBER: Final[Schema] = _ref("number")
NODE: Final[Schema] = _ref("node")
IDENTIFIER: Final[Schema] = {"type": "string", "pattern": ID_PATTERN}
DTYPE: Final[Schema] = {"enum": sorted(DTYPES)}
SIZES: Final[Schema] = {"type": "array", "items": COUNT, "maxItems": MAX_DIMENSIONS}

DEFINITIONS: Final[dict[str, Schema]] = {
    "nonfinite": {
        **_tagged("float", v={"enum": ["nan", "inf", "-inf"]}),
        "additionalProperties": False,
    },
    "number": {
        "anyOf": [
            {"type": "number", "minimum": -sys.float_info.max, "maximum": sys.float_info.max},
            _ref("nonfinite"),
        ]
    },
    "tensor_node": _tagged("tensor", i=INDEX),
    "other_node": {
        "type": "object",
        "properties": {"$": {"type": "string", "pattern": "^(?!(float|tensor)$)[a-z][a-z_0-9]*$"}},
        "required": ["$"],
    },
    "node": {
        "anyOf": [
            {"type": ["null", "boolean", "number", "string"]},
            _ref("tensor_node"),
            _ref("nonfinite"),
            _ref("other_node"),
        ]
    },
    "gap": _closed(what=TEXT, why=TEXT),
    "finding": _closed(
        detector=TEXT,
        site=_or_null(TEXT),
        step=WHOLE,
        value=NUMBER,
        limit=NUMBER,
        kind=TEXT,
        level={"enum": ["note", "capture"]},
        text=TEXT,
    ),
    "step": _closed(
        step=WHOLE,
        loss=_or_null(NUMBER),
        grad_norm=_or_null(NUMBER),
        lr=_or_null(NUMBER),
        updated=YES_NO,
        seconds=NUMBER,
        times=_map(NUMBER),
        scalars=_map(NUMBER),
    ),
    "output": _closed(
        leaf=TEXT,
        dtype=DTYPE,
        shape=SIZES,
        hash=HASH,
        tensor=_or_null(INDEX),
        changed=YES_NO,
        requires_grad=YES_NO,
    ),
    "call": _closed(
        index=COUNT,
        root=TEXT,
        module=TEXT,
        step=WHOLE,
        args=NODE,
        kwargs=NODE,
        rng=_or_null(OPEN),
        state=_closed(buffers=_map(INDEX), attributes=_map(_map(NODE))),
        training=_list(TEXT),
        grad_enabled=YES_NO,
        inference_mode=YES_NO,
        autocast=_list(_closed(device=TEXT, dtype=TEXT, enabled=YES_NO, cache=YES_NO)),
        outputs=_list(_ref("output")),
        raised=YES_NO,
    ),
    "backward": _closed(
        number=COUNT,
        after_call=COUNT,
        create_graph=YES_NO,
        gradients=_list(_closed(call=COUNT, leaf=TEXT, tensor=INDEX)),
    ),
    "segment": _closed(
        step=WHOLE,
        first_step=WHOLE,
        rng=_or_null(OPEN),
        batch=NODE,
        calls=_list(_ref("call")),
        backwards=_list(_ref("backward")),
        loss=_or_null(_closed(tensor=INDEX, after_call=COUNT)),
        gradients=_list(_closed(parameter=TEXT, hash=HASH, tensor=_or_null(INDEX))),
        gradients_unavailable=_or_null(TEXT),
        grads_present=YES_NO,
        exception=_or_null(
            _closed(
                type=TEXT,
                message=TEXT,
                traceback=_list(_closed(file=TEXT, line=WHOLE, function=TEXT, code=TEXT)),
            )
        ),
    ),
    "code": _closed(
        repository=_or_null(TEXT),
        commit=_or_null(TEXT),
        dirty=YES_NO,
        diff=TEXT,
        diff_truncated=YES_NO,
    ),
    "model": _closed(
        roots=NODE, sources=_list(_closed(name=TEXT, file=TEXT, line=WHOLE, text=TEXT))
    ),
    "optimizer": _closed(
        **{"name": TEXT, "class": TEXT, "lr": _list(NUMBER), "parameters": _list(_list(TEXT))}
    ),
    "storage": _closed(bytes=COUNT, hash=HASH, dtype=DTYPE),
    "tensor": _closed(
        storage={"type": "integer", "minimum": -1, "maximum": LARGEST},
        dtype=DTYPE,
        offset=COUNT,
        size=SIZES,
        stride=SIZES,
        object=WHOLE,
        requires_grad=YES_NO,
        device=TEXT,
        role=TEXT,
        name=TEXT,
        reliable=YES_NO,
    ),
}

SCHEMA: Final[Schema] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Manifest of a flight recorder's incident",
    "description": (
        "All of an incident but its bytes; schemas/layout.md says where it lies in the file. "
        "Whole numbers are written without a point. Beyond this schema a reader checks that "
        "sites and times parse, that tensors stay inside their storages, that every tensor index "
        "exists, and the limits of schemas/layout.md."
    ),
    **_closed(
        format={"const": FORMAT},
        id=IDENTIFIER,
        created=TEXT,
        flightrec=TEXT,
        kind=TEXT,
        step=WHOLE,
        fingerprint=TEXT,
        reason=TEXT,
        detector=_or_null(TEXT),
        site=_or_null(TEXT),
        rank=COUNT,
        world_size=COUNT,
        run=_closed(id=IDENTIFIER, name=TEXT, started=TEXT, pid=COUNT, argv=_list(TEXT)),
        findings=_list(_ref("finding")),
        environment=OPEN,
        code=_or_null(_ref("code")),
        options=OPEN,
        detectors=_list(_closed(name=TEXT, configuration=OPEN)),
        model=_ref("model"),
        step_fn=_or_null(_closed(name=TEXT, source=TEXT)),
        optimizers=_list(_ref("optimizer")),
        segment=_ref("segment"),
        controls=_list(_ref("segment")),
        steps=_list(_ref("step")),
        sites=_list(TEXT),
        not_captured=_list(_ref("gap")),
        dropped=_map(COUNT),
        notes=_list(TEXT),
        storages=_list(_ref("storage")),
        tensors=_list(_ref("tensor")),
    ),
    "$defs": DEFINITIONS,
}
"""The schema of the newest format."""
