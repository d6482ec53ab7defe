"""Which module's code is running: entries into modules, also in recomputation."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from replay.oplog import Visit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NO_TASK = -1
"""Number of the graph task outside every backward pass."""


class Entry:
    """A module run that has not ended: its visit, and the backward pass it was entered in."""

    __slots__ = ("task", "visit")

    def __init__(self, visit: int, task: int) -> None:
        """Remember the index of the visit and the graph task."""
        self.visit = visit
        self.task = task


class ModuleStack:
    """Context in which every entry into a module of `names` becomes a `Visit`.

    `nn.Module.__call__` itself is wrapped while it is open: hooks would switch off fast paths,
    miss what other hooks do, and stay behind when a forward raises. A module that is not among
    the recorded ones counts as part of the recorded module around it.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        visits: list[Visit],
        ended: Callable[[Visit, object], None],
    ) -> None:
        """Append to `visits`; `names` gives public names by id; `ended` hears of outputs."""
        self._names = names
        self._visits = visits
        self._ended = ended
        self._calls: Counter[tuple[str, bool]] = Counter()
        self._original: Any = None
        self.step = 0
        self.root_call = -1
        self.entries: list[Entry] = []

    def __enter__(self) -> ModuleStack:
        """Wrap the entry of modules."""
        original = self._original = nn.Module.__call__
        stack = self

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if not stack.push(module):
                return original(module, *args, **kwargs)
            output: Any = None
            returned = False
            try:
                output = original(module, *args, **kwargs)
                returned = True
            finally:
                stack.pop(output, returned=returned)
            return output

        nn.Module.__call__ = call  # type: ignore[method-assign]  # put back in __exit__
        return self

    def __exit__(self, *_: object) -> None:
        """Put the plain entry back."""
        nn.Module.__call__ = self._original  # type: ignore[method-assign]  # what was there

    def open_call(self, step: int) -> None:
        """A recorded call begins, before or right after the entry into its module.

        Calls are counted from 0 again when another step of the segment begins.
        """
        if step != self.step:
            self.step = step
            self.root_call = -1
            self._calls.clear()
        self.root_call += 1
        for entry in self.entries:
            visit = self._visits[entry.visit]
            self._calls[visit.module, visit.again] = visit.call + 1
            visit.step, visit.root_call = self.step, self.root_call

    def push(self, module: nn.Module) -> bool:
        """Enter `module` if it is a recorded one."""
        name = self._names.get(id(module))
        if name is None:
            return False
        task = torch._C._current_graph_task_id()
        again = task != NO_TASK
        visit = Visit(
            module=name,
            module_type=type(module).__name__,
            call=self._calls[name, again],
            root_call=max(self.root_call, 0),
            step=self.step,
            again=again,
        )
        self._calls[name, again] += 1
        self.entries.append(Entry(len(self._visits), task))
        self._visits.append(visit)
        return True

    def pop(self, output: object, *, returned: bool) -> None:
        """Leave the innermost module."""
        entry = self.entries.pop()
        if returned:
            self._ended(self._visits[entry.visit], output)
