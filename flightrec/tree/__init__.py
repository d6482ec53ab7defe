"""Nested values as JSON nodes and named tensors, and back."""

from __future__ import annotations

from flightrec.tree.decoder import Decoder, Resolver
from flightrec.tree.encoder import Encoder
from flightrec.tree.leaves import leaves
from flightrec.tree.nodes import (
    Node,
    Placeholder,
    Tagged,
    number,
    parse_number,
    rebase,
    tensor_indices,
)
from flightrec.tree.raw import TensorLoader, from_raw, raw_bytes, tensor_hash, to_storage
from flightrec.tree.table import TensorTable

__all__ = [
    "Decoder",
    "Encoder",
    "Node",
    "Placeholder",
    "Resolver",
    "Tagged",
    "TensorLoader",
    "TensorTable",
    "from_raw",
    "leaves",
    "number",
    "parse_number",
    "raw_bytes",
    "rebase",
    "tensor_hash",
    "tensor_indices",
    "to_storage",
]
