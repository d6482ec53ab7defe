"""Nodes of tensors that are not plain: sparse, nested, quantized, and wrappers of others."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from flightrec.errors import CorruptIncidentError
from flightrec.tree.naming import importable_class
from flightrec.tree.parts import COMPRESSED, is_wrapper, parts, why_opaque
from flightrec.tree.raw import Quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree.decoder import Decoder
    from flightrec.tree.encoder import Encoder
    from flightrec.tree.nodes import Node, Tagged

_LAYOUTS = {str(layout).removeprefix("torch."): layout for layout in COMPRESSED}


def write_special(encoder: Encoder, value: torch.Tensor, name: str) -> Node:
    """Its parts as tensors, and what else it takes to put them together again."""
    why = why_opaque(value)
    if why is not None:
        return encoder.missing(value, name, why)
    with Quiet():
        try:
            found = parts(value)
            tag, extras = _describe(encoder, value, name)
        except Exception as fault:
            return encoder.missing(value, name, f"{type(fault).__name__} while taken apart")
        if tag == "wrapper" and extras["class"] is None:
            return encoder.missing(value, name, "its class cannot be imported under its own name")
        node = encoder.open(value, tag)
        node |= extras
        node["requires_grad"] = value.requires_grad
        node["parameter"] = isinstance(value, torch.nn.Parameter)
        node["parts"] = [
            [part, encoder.encode(tensor, f"{name}.{part}")] for part, tensor in found.items()
        ]
    return node


def _describe(encoder: Encoder, value: Any, name: str) -> tuple[str, dict[str, Any]]:
    """Return the tag of its kind, and what the parts do not say."""
    if value.layout is torch.jagged:
        return "jagged", {
            "dimension": value._ragged_idx,
            "shortest": value._maybe_min_seqlen,
            "longest": value._maybe_max_seqlen,
        }
    if is_wrapper(value):
        _, context = value.__tensor_flatten__()
        return "wrapper", {
            "class": importable_class(type(value)),
            "context": encoder.encode(context, f"{name}.context"),
            "size": list(value.size()),
            "stride": list(value.stride()),
        }
    if value.is_nested:
        return "nested", {}
    if value.is_quantized:
        return "quantized", _describe_quantized(encoder, value)
    size = list(value.size())
    if value.layout is torch.sparse_coo:
        return "sparse", {"size": size, "coalesced": value.is_coalesced()}
    layout = str(value.layout).removeprefix("torch.")
    return "compressed", {"size": size, "layout": layout}


def _describe_quantized(encoder: Encoder, value: torch.Tensor) -> dict[str, Any]:
    if value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return {"scale": encoder.encode(value.q_scale()), "zero_point": value.q_zero_point()}
    return {"axis": value.q_per_channel_axis()}


def _read(make: Callable[[dict[str, torch.Tensor], Tagged], torch.Tensor]) -> Any:
    """Return a reader that decodes the parts, makes the tensor, and gives it its flags."""

    def read(decoder: Decoder, node: Tagged) -> Any:
        found = {str(name): decoder.decode(part) for name, part in node["parts"]}
        try:
            with warnings.catch_warnings():
                # torch calls most of these kinds experimental; the run that had them knows
                warnings.simplefilter("ignore")
                return _flagged(make(found, node), node)
        except RuntimeError as fault:
            raise CorruptIncidentError(f"impossible {node['$']} tensor: {fault}") from fault

    return read


def _flagged(made: torch.Tensor, node: Tagged) -> torch.Tensor:
    if node.get("parameter") is True:
        return torch.nn.Parameter(made, node["requires_grad"] is True)
    if node["requires_grad"] is True and not made.requires_grad:
        made.requires_grad_()
    return made


def _make_sparse(found: dict[str, torch.Tensor], node: Tagged) -> torch.Tensor:
    return torch.sparse_coo_tensor(
        found["indices"],
        found["values"],
        node["size"],
        is_coalesced=node["coalesced"],
        check_invariants=True,
    )


def _make_compressed(found: dict[str, torch.Tensor], node: Tagged) -> torch.Tensor:
    return torch.sparse_compressed_tensor(
        found["compressed"],
        found["plain"],
        found["values"],
        node["size"],
        layout=_LAYOUTS[node["layout"]],
        check_invariants=True,
    )


def _make_quantized(found: dict[str, torch.Tensor], node: Tagged) -> torch.Tensor:
    if "axis" not in node:
        return torch._make_per_tensor_quantized_tensor(
            found["values"], node["scale"], node["zero_point"]
        )
    return torch._make_per_channel_quantized_tensor(
        found["values"], found["scales"], found["zero_points"], node["axis"]
    )


def _make_nested(found: dict[str, torch.Tensor], _node: Tagged) -> torch.Tensor:
    values, sizes, strides, offsets = map(
        found.__getitem__, ("values", "sizes", "strides", "offsets")
    )
    _inside(int(values.numel()), sizes, strides, offsets)
    made: torch.Tensor = torch._nested_view_from_buffer(values, sizes, strides, offsets)
    return made


def _inside(length: int, sizes: torch.Tensor, strides: torch.Tensor, offsets: torch.Tensor) -> None:
    """Refuse pieces that reach outside the values; torch itself does not look."""
    last = offsets + ((sizes - 1) * strides).sum(-1)
    lowest = min(int(part.min()) for part in (sizes, strides, offsets) if part.numel())
    if lowest < 0 or (offsets.numel() and int(last.max()) >= length and int(sizes.min()) > 0):
        raise CorruptIncidentError("pieces of a nested tensor lie outside its values")


def _make_jagged(found: dict[str, torch.Tensor], node: Tagged) -> torch.Tensor:
    values, offsets, lengths = found["values"], found["offsets"], found.get("lengths")
    ends = offsets if lengths is None else offsets[:-1] + lengths
    dimension = node["dimension"]
    rows = values.size(dimension - 1)
    if int(offsets.min()) < 0 or int(ends.max()) > rows or bool((offsets.diff() < 0).any()):
        raise CorruptIncidentError("pieces of a nested tensor lie outside its values")
    return torch.nested.nested_tensor_from_jagged(
        values,
        offsets,
        lengths,
        jagged_dim=dimension,
        min_seqlen=node["shortest"],
        max_seqlen=node["longest"],
    )


def _read_wrapper(decoder: Decoder, node: Tagged) -> Any:
    kind: Any = decoder.resolve_class(node["class"])
    found = {str(name): decoder.decode(part) for name, part in node["parts"]}
    context = decoder.decode(node["context"])
    made = kind.__tensor_unflatten__(found, context, tuple(node["size"]), tuple(node["stride"]))
    return _flagged(made, node)


READERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "sparse": _read(_make_sparse),
    "compressed": _read(_make_compressed),
    "quantized": _read(_make_quantized),
    "nested": _read(_make_nested),
    "jagged": _read(_make_jagged),
    "wrapper": _read_wrapper,
}
