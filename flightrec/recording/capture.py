"""From live records to a Capture: copied on the training thread, finished in the background."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from flightrec import structure
from flightrec.describing import ReplayableEncoder
from flightrec.tree import (
    TensorLoader,
    TensorTable,
    rebase,
    tensor_hash,
)
from flightrec.tree.parts import is_plain
from flightrec.types import Capture, Stat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import torch
    from torch import nn

    from flightrec.buffers.ring import (
        BackwardRecord,
        CallRecord,
        Encoded,
        SegmentRecord,
        StepEntry,
    )
    from flightrec.probes.state import StateSnapshot
    from flightrec.rng import Generators, RngState
    from flightrec.types import Json, Site, StepRecord

OUTPUT_BYTES = 256 * 1024 * 1024
"""An output larger than this is kept as a hash only."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """Everything of one failure, copied; `finish` turns it into a Capture later."""

    id: str
    manifest: dict[str, Any]
    table: TensorTable
    hashed: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    """Manifest entries that still need the content hash of a copied tensor, by its index."""

    records: tuple[StepRecord, ...] = ()

    def finish(self, late: Mapping[str, Any]) -> Capture:
        """Hash and export; `late` holds manifest entries that were not ready before.

        The fingerprint ends with the code version, which is one of them.
        """
        storages, tensors = self.table.export()
        load = TensorLoader(tensors, lambda storage: storages[storage].data)
        for entry, index in self.hashed:
            entry["hash"] = tensor_hash(load(index))
        sites, stats_TSK = stack_statistics(self.records)
        commit = (late.get("code") or {}).get("commit") or ""
        manifest = {**self.manifest, **late}
        manifest["fingerprint"] += f"|{commit}"
        return Capture(
            id=self.id,
            manifest=manifest,
            storages=storages,
            tensors=tensors,
            sites=sites,
            stats_TSK=stats_TSK,
        )


class Drafter:
    """Copies what an incident needs out of the live run into one table of tensors."""

    def __init__(
        self,
        roots: Mapping[str, nn.Module],
        generators: Generators,
        *,
        weights: bool,
        max_bytes: int,
        gradient_bytes: int,
        also: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """Draft one incident of `roots`; the source of the functions `also` comes along.

        At most `max_bytes` of copies are taken: weights first, then the failing segment, then
        gradients of parameters (at most `gradient_bytes`), then earlier steps, newest first.
        What does not fit is left out and noted; where a hash serves, the hash is kept.
        """
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._also = also
        self.table = TensorTable()
        self.not_captured: list[dict[str, str]] = []
        self._roots = roots
        self._generators = generators
        self._weights = weights
        self._gradient_bytes = gradient_bytes
        self._maps: dict[int, list[int]] = {}
        self._hashed: list[tuple[dict[str, Any], int]] = []
        self._now: dict[str, dict[str, Any]] = {}

    def model(self) -> dict[str, Any]:
        """Describe the roots with their weights as they are now."""
        tensors = [
            t for root in self._roots.values() for t in (*root.parameters(), *root.buffers())
        ]
        size = sum(tensor.numel() * tensor.element_size() for tensor in set(tensors))
        if not self._weights or not self._afford(size):
            why = "weights='none'" if not self._weights else self._over(size)
            self.miss("weights", f"{why}; replay needs --model")
            return {"roots": None, "sources": []}
        description = structure.describe(self._roots, self.table, also=self._also)
        self.not_captured.extend(description.not_captured)
        return {"roots": description.node, "sources": description.sources}

    def segment(
        self, segment: SegmentRecord, entry: StepEntry, state_now: StateSnapshot
    ) -> dict[str, Any]:
        """Encode the newest segment, with outputs and the gradients that entered them."""
        self._now = dict(state_now.attributes)
        self._left -= entry.nbytes + segment.gradient_bytes
        unavailable = segment.unavailable
        for backward in segment.backwards:
            if any(grad._version != version for _, _, grad, version in backward.gradients):
                unavailable = unavailable or "a gradient was changed in place by a hook"
        return {
            "step": entry.step,
            "first_step": segment.first_step,
            "rng": self._rng(entry.rng),
            "batch": None if entry.batch is None else self._rebased(entry.batch),
            "calls": [self._call(call, outputs=True) for call in segment.calls],
            "backwards": [self._backward(backward) for backward in segment.backwards],
            "loss": self._loss(segment.loss),
            "gradients": [],
            "gradients_unavailable": unavailable,
            "grads_present": segment.grads_present,
            "exception": None,
        }

    def controls(
        self, entries: Sequence[StepEntry], state_now: StateSnapshot
    ) -> list[dict[str, Any]]:
        """Encode earlier, healthy steps of the ring, as many of the newest as fit; oldest first."""
        encoded = []
        for number, entry in enumerate(reversed(entries)):
            if not self._afford(entry.nbytes):
                self.miss(f"{len(entries) - number} earlier steps", self._over(entry.nbytes))
                break
            encoded.append(self._control(entry, state_now))
        return encoded[::-1]

    def _control(self, entry: StepEntry, state_now: StateSnapshot) -> dict[str, Any]:
        self._now = dict(state_now.attributes)
        return {
            "step": entry.step,
            "first_step": entry.step,
            "rng": self._rng(entry.rng),
            "batch": None if entry.batch is None else self._rebased(entry.batch),
            "calls": [self._call(call, outputs=False) for call in entry.calls],
            "backwards": [],
            "loss": None,
            "gradients": [],
            "gradients_unavailable": None,
            "grads_present": False,
            "exception": None,
        }

    def gradients(self, named: Iterable[tuple[str, torch.Tensor]]) -> list[dict[str, Any]]:
        """Encode the gradients of parameters: a hash always, values within the budget."""
        entries = []
        for name, gradient in named:
            entry: dict[str, Any] = {"parameter": name, "hash": "", "tensor": None}
            self._keep(entry, gradient.detach(), role="grad", name=name)
            entries.append(entry)
        return entries

    def freeze(self) -> None:
        """Copy everything added so far; later changes in the run are not seen."""
        self.table.freeze()

    def draft(
        self, incident_id: str, manifest: dict[str, Any], records: tuple[StepRecord, ...]
    ) -> Draft:
        """Return the finished draft."""
        self.freeze()
        return Draft(
            id=incident_id,
            manifest=manifest,
            table=self.table,
            hashed=self._hashed,
            records=records,
        )

    def _afford(self, size: int) -> bool:
        """Take `size` bytes off what is left, if they are there."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def _over(self, size: int) -> str:
        return f"{size} bytes are over incident_bytes={self._max_bytes}"

    def _keep(self, entry: dict[str, Any], tensor: torch.Tensor, *, role: str, name: str) -> None:
        size = tensor.numel() * tensor.element_size()
        over = size > OUTPUT_BYTES or (role == "grad" and size > self._gradient_bytes)
        if not is_plain(tensor) or over or not self._afford(size):
            entry["hash"] = tensor_hash(tensor)
            return
        if role == "grad":
            self._gradient_bytes -= size
        index = self.table.add(tensor, role=role, name=name)
        entry["tensor"] = index
        self._hashed.append((entry, index))

    def miss(self, what: str, why: str) -> None:
        """Note once what an incident lacks."""
        if not any(known["what"] == what for known in self.not_captured):
            self.not_captured.append({"what": what, "why": why})

    def _loss(self, loss: tuple[torch.Tensor, int] | None) -> dict[str, Any] | None:
        if loss is None:
            return None
        return {
            "tensor": self.table.add(loss[0], role="value", name="loss"),
            "after_call": loss[1],
        }

    def _call(self, call: CallRecord, *, outputs: bool) -> dict[str, Any]:
        return {
            "index": call.index,
            "root": call.root,
            "module": call.module,
            "step": call.step,
            "args": self._rebased(call.args),
            "kwargs": self._rebased(call.kwargs),
            "rng": self._rng(call.rng),
            "state": self._state(call.state),
            "training": list(call.state.training),
            "grad_enabled": call.grad_enabled,
            "inference_mode": call.inference_mode,
            "autocast": [dict(entry) for entry in call.autocast],
            "outputs": self._outputs(call) if outputs else [],
            "raised": call.raised,
        }

    def _outputs(self, call: CallRecord) -> list[dict[str, Any]]:
        entries = []
        for output in call.outputs:
            tensor = output.tensor
            entry: dict[str, Any] = {
                "leaf": output.leaf,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape),
                "hash": "",
                "tensor": None,
                "changed": _version(tensor) != output.version,
                "requires_grad": output.requires_grad,
            }
            name = f"{call.root}:{call.module}{output.leaf}"
            self._keep(entry, tensor, role="output", name=name)
            entries.append(entry)
        return entries

    def _backward(self, backward: BackwardRecord) -> dict[str, Any]:
        return {
            "number": backward.number,
            "after_call": backward.after_call,
            "create_graph": backward.create_graph,
            "gradients": [
                {
                    "call": call,
                    "leaf": leaf,
                    "tensor": self.table.add(
                        gradient.detach(), role="grad_output", name=f"{call}:{leaf}"
                    ),
                }
                for call, leaf, gradient, _ in backward.gradients
            ],
        }

    def _state(self, state: StateSnapshot) -> dict[str, Any]:
        """Encode buffers, and those attributes that differ from what they are now."""
        buffers = {}
        for name, tensor in state.buffers():
            if is_plain(tensor):
                buffers[name] = self.table.add(tensor, role="buffer", name=name, owned=True)
            else:
                self.miss(f"buffer {name} before the call", f"layout {tensor.layout}")
        encoder = ReplayableEncoder(self.table, modules=self._module_names())
        attributes: dict[str, dict[str, Json]] = {}
        for place, values in state.attributes:
            now = self._now.get(place, {})
            changed = {
                name: encoder.encode(value, name=f"{place}.{name}")
                for name, value in values.items()
                if name not in now or not _same(now[name], value)
            }
            if changed:
                attributes[place] = changed
        return {"buffers": buffers, "attributes": attributes}

    def _module_names(self) -> dict[int, str]:
        return {
            id(module): f"{key}:{name}"
            for key, root in self._roots.items()
            for name, module in root.named_modules()
        }

    def _rng(self, state: RngState) -> Json:
        return self._generators.encode(state, self.table)

    def _rebased(self, encoded: Encoded) -> Json:
        index_map = self._maps.get(id(encoded.table))
        if index_map is None:
            index_map = self._maps[id(encoded.table)] = self.table.extend(encoded.table)
        return rebase(encoded.node, index_map)


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _same(now: Any, then: Any) -> bool:
    """Is it the same value? Containers are the same when their items are."""
    if now is then:
        return True
    if type(now) is not type(then):
        return False
    if type(now) in (bool, int, float, str):
        return bool(now == then)
    if type(now) in (list, deque, dict) and len(now) == len(then):
        if type(now) is dict:
            return list(now) == list(then) and all(map(is_, now.values(), then.values()))
        return all(map(is_, now, then))
    return False


def stack_statistics(records: Sequence[StepRecord]) -> tuple[tuple[Site, ...], Any]:
    """Join the rows of several steps to one array (T, S, K); NaN where a step lacks a site."""
    rows: dict[Site, int] = {}
    for record in records:
        for site in record.sites:
            rows.setdefault(site, len(rows))
    stats_TSK = np.full((len(records), len(rows), len(Stat)), np.nan)
    for step, record in enumerate(records):
        if record.sites:
            stats_TSK[step, [rows[site] for site in record.sites]] = record.stats_SK
    return tuple(rows), stats_TSK
