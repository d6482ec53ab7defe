"""Put in place what a call found when it was recorded: buffers, attributes, flags, generators."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from replay.bits import same_bits
from replay.pristine import thaw, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from replay.engine import Engine
    from replay.episode import Episode, RecordedCall


@contextmanager
def unobserved() -> Iterator[None]:
    """Hide the engine's own operators from every mode that an observer has switched on."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


def version_of(tensor: torch.Tensor) -> int:
    """Return the version counter, -1 for inference tensors, which have none."""
    return -1 if tensor.is_inference() else tensor._version


class Reinstate:
    """The state around the calls of one run; writes only what differs."""

    def __init__(self, engine: Engine, episode: Episode) -> None:
        """Reinstate state of `episode` in the models of `engine`."""
        self._engine = engine
        self._episode = episode
        self._applied: dict[str, tuple[torch.Tensor, torch.Tensor, int]] = {}
        self._autocast: tuple[tuple[Mapping[str, Any], ...], ExitStack] | None = None
        self._listed: dict[str, set[str]] = {}
        for call in episode.calls:
            for key, attributes in call.attributes.items():
                self._listed.setdefault(key, set()).update(attributes)

    def before(self, call: RecordedCall) -> None:
        """Give buffers, plain attributes and flags the values they had before `call`."""
        engine = self._engine
        for key, value in call.buffers().items():
            self._buffer(key, value)
        for key, names in self._listed.items():
            attributes = call.attributes.get(key, {})
            values = {name: attributes[name] for name in names if name in attributes}
            self._attributes(engine.modules[key], names, values)
        if call.training is not None:
            for module, keys in engine.flags:
                training = not call.training.isdisjoint(keys)
                if module.training is not training:
                    module.training = training

    def generators(self, state: Any) -> None:
        """Put every generator where it was; without a recorded state it stays where it is."""
        if state is not None:
            self._engine.generators.restore(state)

    def zero_gradients(self) -> None:
        """Start from zeros where the run did, which turns -0 into 0."""
        if not self._episode.grads_present:
            return
        for model in self._engine.models.values():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)

    def enter_autocast(self, recorded: tuple[Mapping[str, Any], ...]) -> None:
        """Open what was on; one block for neighbouring calls, as its weight cache matters."""
        if self._autocast is not None:
            if self._engine.one_autocast and self._autocast[0] == recorded:
                return
            self.leave_autocast()
        stack = ExitStack()
        for entry in recorded:
            stack.enter_context(
                torch.autocast(
                    entry["device"],
                    dtype=getattr(torch, entry["dtype"]),
                    enabled=entry["enabled"],
                    cache_enabled=entry["cache"],
                )
            )
        self._autocast = (recorded, stack)

    def leave_autocast(self) -> None:
        """Close what `enter_autocast` opened."""
        if self._autocast is not None:
            self._autocast[1].close()
            self._autocast = None

    def _attributes(self, module: nn.Module, names: set[str], values: dict[str, object]) -> None:
        """Set plain attributes; one that is listed for other calls only is as at the capture."""
        pristine = self._engine.pristine
        for name in names - values.keys():
            if pristine.knows(module, name):
                values[name] = pristine.attribute(module, name)
        module.__dict__.update(thaw(values))

    def _buffer(self, key: str, value: torch.Tensor) -> None:
        root, _, name = key.partition(":")
        owner, _, local = name.rpartition(".")
        table = self._engine.modules[f"{root}:{owner}"]._buffers
        buffer = table.get(local)
        known = self._applied.get(key)
        if (
            known is not None
            and known[0] is value
            and known[1] is buffer
            and known[2] == version_of(buffer)
        ):
            return
        if buffer is None or buffer.is_inference() or buffer.dtype != value.dtype:
            buffer = table[local] = value.detach().to(self._engine.device).clone()
        elif not same_bits(buffer, value):
            write(buffer, value)
        self._applied[key] = (value, buffer, version_of(buffer))
