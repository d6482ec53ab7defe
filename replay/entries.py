"""Notice the outermost entries into recorded models while a user's `step_fn` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.modules import module as torch_module

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from replay.episode import RecordedCall


class Listener(Protocol):
    """Who wants to know about entries; see `rerun.Rerun`."""

    def call_at(self, key: str) -> RecordedCall:
        """Return the recorded call that an entry into `key` repeats."""

    def begin(self, call: RecordedCall, module: nn.Module) -> None:
        """A call starts."""

    def end(self, call: RecordedCall, output: object) -> None:
        """A call ended; `output` is None where it raised."""


class Entries:
    """Context in which entries into modules of `names` are told to a listener.

    Global hooks, since hooks on a module switch off the fast paths of transformer layers.
    Entries from inside a backward pass are recomputation, not calls.
    """

    def __init__(self, listener: Listener, names: Mapping[int, str]) -> None:
        """Tell `listener`; `names` gives `root:name` by the id of a module."""
        self._listener = listener
        self._names = names
        self._depth = 0
        self._call: RecordedCall | None = None
        self._handles: list[Any] = []

    def __enter__(self) -> Entries:
        """Hang up the two hooks."""
        self._handles = [
            torch_module.register_module_forward_pre_hook(self._enter),
            torch_module.register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()

    def _enter(self, module: nn.Module, _: object) -> None:
        key = self._names.get(id(module))
        if key is None or torch._C._current_graph_task_id() != -1:
            return
        self._depth += 1
        if self._depth == 1:
            self._call = self._listener.call_at(key)
            self._listener.begin(self._call, module)

    def _leave(self, module: nn.Module, _: object, output: object) -> None:
        if id(module) not in self._names or torch._C._current_graph_task_id() != -1:
            return
        self._depth -= 1
        if self._depth == 0 and self._call is not None:
            self._listener.end(self._call, output)
