"""Nested values as JSON nodes and named tensors, and back.

Tags of nodes, and what they stand for. None, bool, 64-bit int, str and finite float have none.

    float int str                     not finite; longer than 64 bits; with lone surrogates
    bytes bytearray complex           base64, or a tensor `t` of bytes where they are many
    ellipsis notimplemented           the constants
    date time datetime timedelta      from the standard library, with `timezone` and `zoneinfo`
    decimal fraction uuid path        by their text, `path` with its flavour
    pattern                           a regular expression
    torch device size                 dtypes, layouts, memory formats; devices; `torch.Size`
    list tuple set frozenset deque    elements `v`, or a tensor `t` of many plain numbers
    dict ordered counter default      pairs `v` of key and value
    slice range                       start, stop, step
    object                            `class`, what is in `__dict__` (`state`) and in `slots`;
                                      for subclasses of builtins also `of` and its content `v`
    namedtuple namespace proxy        local named tuples; SimpleNamespace; MappingProxyType
    enum torch_enum class function    by name
    method partial                    with what they are bound to
    tensor                            index `i`; `leaf` false where autograd made it; `parameter`;
                                      `class`, `state` and `slots` where there are any
    sparse compressed nested jagged   `parts`, each a tensor, and what puts them together
    quantized wrapper
    ndarray npscalar npdtype          NumPy
    torch_generator numpy_generator   generators with their state
    numpy_state random
    module_ref parameter_ref          what the incident holds under that name already
    ref                               the object whose node has this `id`
    missing                           `what` could not be kept, and `why`
"""

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
