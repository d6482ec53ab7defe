"""Nodes of random generators: torch, NumPy and Python, with their state."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flightrec.errors import CorruptIncidentError
from flightrec.tree.nodes import number, parse_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged

BIT_GENERATORS: Mapping[str, Any] = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937,
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.Philox,
        np.random.SFC64,
    )
}
"""Bit generators of NumPy by name; others cannot be made again."""


def python_state_node(encoder: Encoder, state: Any, name: str) -> dict[str, Any]:
    """Write what `random.getstate` gave: version, 625 words as a tensor, the spare Gaussian."""
    version, words, spare = state
    data = torch.from_numpy(np.array(words, dtype=np.uint32).view(np.int32))
    index = encoder.table.add(data, role="rng", name=name, owned=True)
    gauss = None if spare is None else number(spare)
    return {"version": version, "state": {"$": "tensor", "i": index}, "gauss": gauss}


def python_state(decoder: Decoder, node: Tagged) -> tuple[Any, ...]:
    """Read what `python_state_node` wrote, for `random.setstate`."""
    words = decoder.tensor(node["state"]).numpy().view(np.uint32)
    gauss = None if node["gauss"] is None else parse_number(node["gauss"])
    return node["version"], tuple(words.tolist()), gauss


def torch_state_node(encoder: Encoder, state: torch.Tensor, name: str) -> Node:
    """Write what `torch.Generator.get_state` gave, which nobody else holds."""
    return {"$": "tensor", "i": encoder.table.add(state, role="rng", name=name, owned=True)}


def write_torch(encoder: Encoder, value: torch.Generator, name: str) -> Node:
    """Device and state."""
    node = encoder.open(value, "torch_generator")
    node["device"] = str(value.device)
    node["state"] = torch_state_node(encoder, value.get_state(), name)
    node["default"] = value is torch.default_generator
    return node


def write_numpy(encoder: Encoder, value: Any, name: str) -> Node:
    """Kind and state of a `numpy.random.Generator` or `RandomState`."""
    legacy = type(value) is np.random.RandomState
    bits = value._bit_generator if legacy else value.bit_generator
    if type(bits).__name__ not in BIT_GENERATORS or type(bits) not in BIT_GENERATORS.values():
        return encoder.missing(value, name, f"bit generator {type(bits).__name__}")
    node = encoder.open(value, "numpy_state" if legacy else "numpy_generator")
    node["bits"] = type(bits).__name__
    state = value.get_state(legacy=False) if legacy else bits.state
    node["state"] = encoder.encode(state, name)
    return node


def write_random(encoder: Encoder, value: random.Random, name: str) -> Node:
    """State of a `random.Random`."""
    node = encoder.open(value, "random")
    node |= python_state_node(encoder, value.getstate(), name)
    return node


def _read_torch(decoder: Decoder, node: Tagged) -> Any:
    if node["default"] is True:
        return torch.default_generator
    words = decoder.tensor(node["state"]).cpu()
    try:
        made = torch.Generator(device=node["device"])
    except RuntimeError:  # no such device here: one to draw from, but other numbers
        return torch.Generator()
    made.set_state(words)
    return made


def _bits(node: Tagged) -> Any:
    kind = BIT_GENERATORS.get(node["bits"])
    if kind is None:
        raise CorruptIncidentError(f"unknown bit generator {node['bits']!r}")
    return kind(0)


def _read_numpy(decoder: Decoder, node: Tagged) -> Any:
    made = np.random.Generator(_bits(node))
    made.bit_generator.state = decoder.decode(node["state"])
    return made


def _read_legacy(decoder: Decoder, node: Tagged) -> Any:
    made = np.random.RandomState(_bits(node))
    made.set_state(decoder.decode(node["state"]))
    return made


def _read_random(decoder: Decoder, node: Tagged) -> Any:
    made = random.Random(0)
    made.setstate(python_state(decoder, node))
    return made


WRITERS: Mapping[type, Callable[[Any, Any, str], Node]] = {
    torch.Generator: write_torch,
    np.random.Generator: write_numpy,
    np.random.RandomState: write_numpy,
    random.Random: write_random,
}

READERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "torch_generator": _read_torch,
    "numpy_generator": _read_numpy,
    "numpy_state": _read_legacy,
    "random": _read_random,
}
