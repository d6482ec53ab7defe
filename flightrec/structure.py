"""A model as JSON, and back: modules are made without their constructors and filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from flightrec import source
from flightrec.describing import ModuleEncoder
from flightrec.errors import CorruptIncidentError
from flightrec.needs import needs_of
from flightrec.rebuilding import ModuleDecoder
from flightrec.tree.naming import find
from flightrec.trust import files_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from flightrec.tree import Node, TensorTable
    from flightrec.trust import Trust
    from flightrec.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What `describe` found out about a model."""

    node: dict[str, Any]
    """JSON: `{"$": "model", "roots", "modules", "files"}`; see docs/structure.md."""

    not_captured: list[dict[str, str]] = field(default_factory=list)
    """What could not be written, each with `what` and `why`."""

    sources: list[dict[str, Json]] = field(default_factory=list)
    """Text of the user's classes, functions and modules, for the manifest."""


def describe(
    roots: Mapping[str, nn.Module],
    table: TensorTable,
    *,
    also: Sequence[Callable[..., Any]] = (),
) -> Description:
    """Describe modules by name so that `rebuild` can make them again; their tensors go to `table`.

    `also` are functions whose source text is wanted too, such as a `step_fn`. Runs no code of
    the modules, changes nothing, and never raises for what they hold: see `not_captured`.
    """
    encoder = ModuleEncoder(table, roots)
    node: dict[str, Any] = {
        "$": "model",
        "roots": [[key, encoder.encode(root, key)] for key, root in roots.items()],
    }
    encoder.finish()
    node["modules"] = encoder.entries
    needed = [find(need.module, need.qualname) for need in sorted(needs_of(node))]
    named = [found for found in needed if hasattr(found, "__qualname__")]
    texts = source.collect([*sorted(encoder.classes, key=repr), *named, *also])
    node["files"] = [
        {"module": module, **file.as_json()} for module, file in sorted(texts.files.items())
    ]
    return Description(
        node=node,
        not_captured=[*encoder.not_captured, *texts.not_captured],
        sources=[text.as_json() for text in texts.texts],
    )


def needed_names(node: Node) -> set[str]:
    """Return all names of classes and functions in a node, as `package.module:Qualified.Name`."""
    return {need.name for need in needs_of(node)}


def rebuild(
    node: Node,
    tensors: Callable[[int], torch.Tensor],
    trust: Trust,
    *,
    place: Callable[[str], torch.device] = torch.device,
) -> dict[str, nn.Module]:
    """Make the modules of a description again, by the names they were described under.

    `tensors(i)` gives the i-th tensor of the table, the same object every time. All names are
    checked before anything is imported. Afterwards `trust.changed` lists code whose text
    differs from the recorded one. `place` says where what was on a device (its recorded name,
    such as `cuda:0`) is to be now: devices that modules hold, and their generators.
    Raises `UntrustedNameError`, `CodeMissingError`, `CannotRebuildError`, and
    `CorruptIncidentError` for a node that is none.
    """
    if not isinstance(node, dict) or node.get("$") != "model":
        raise CorruptIncidentError("the incident holds no model")
    try:
        trust.learn(files_of(node))
        trust.check(needs_of(node))
        decoder = ModuleDecoder(tensors, trust, place)
        decoder.fill(node["modules"])
        return {str(key): decoder.decode(root) for key, root in node["roots"]}
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        raise CorruptIncidentError(f"bad description of a model: {fault!r}") from fault
