"""Notices each entry from outside into a recorded module, without touching the module."""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.modules import module as torch_module

from flightrec.guard import guarded
from flightrec.wrappers import wrapped

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from torch import nn

    from flightrec.protocols import Handle


class CallListener(Protocol):
    """What the probe tells, in this order: `call_opened`, then `call_closed` of the same call."""

    def call_opened(
        self, root: str, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """An outermost entry begins; nothing of the forward has run yet."""

    def call_closed(self, output: object, error: BaseException | None) -> None:
        """The entry ended with `output`, or by `error`."""


class Members:
    """Which modules belong to the recorded roots, by identity; follows replaced modules."""

    def __init__(self, roots: Mapping[str, nn.Module]) -> None:
        """Index every module below `roots` (key -> module)."""
        self._roots = roots
        self._places: dict[int, tuple[weakref.ref[nn.Module], str, str]] = {}
        self._foreign: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._index()

    def _index(self) -> None:
        self._places.clear()
        for key, root in self._roots.items():
            for name, module in root.named_modules():
                self._places.setdefault(id(module), (weakref.ref(module), key, name))

    def find(self, module: nn.Module) -> tuple[str, str] | None:
        """Return (root key, dotted name) of a recorded module, or None for any other."""
        place = self._places.get(id(module))
        if place is not None and place[0]() is module:
            return place[1], place[2]
        if module in self._foreign:
            return None
        self._index()
        place = self._places.get(id(module)) or self._inside(module)
        if place is None:
            self._foreign.add(module)
            return None
        self._places[id(module)] = (weakref.ref(module), place[1], place[2])
        return place[1], place[2]

    def _inside(self, module: nn.Module) -> tuple[weakref.ref[nn.Module], str, str] | None:
        """Return the place of the recorded module that a wrapper such as torch.compile calls."""
        around = wrapped(module)
        if around is None:
            return None
        return self._places.get(id(getattr(module, around[0], None)))


class Unwarned:
    """Keeps torch from warning, at each compiled module, that global hooks fire there too.

    They do, and it is meant: the compiled module's call is the one that is recorded.
    """

    def __init__(self) -> None:
        """Put one filter in front of the others."""
        warnings.filterwarnings("ignore", message=".*when there are global hooks on modules")
        self._filter = warnings.filters[0]

    def remove(self) -> None:
        """Take the filter out again; calling this twice does no harm."""
        warnings.filters[:] = [entry for entry in warnings.filters if entry is not self._filter]  # type: ignore[index]  # typeshed has it as a sequence, it is a list


class ForwardProbe:
    """Two process-wide module hooks; nothing hangs on the user's modules.

    Copies and pickles of the model made while recording are therefore clean, and modules that
    are replaced during the run are seen. Global pre-hooks get no keyword arguments, so those
    are read from the frame of `Module._call_impl`; where a torch release names them otherwise,
    the call is noted as incomplete.
    """

    def __init__(self, members: Members, listener: CallListener, faults: Counter[str]) -> None:
        """Watch `members` and tell `listener`; faults of ours are counted into `faults`."""
        self._members = members
        self._listener = listener
        self._faults = faults
        self._module: nn.Module | None = None
        self._depth = 0
        self._outer_error: BaseException | None = None
        self._thread = threading.get_ident()

    def attach(self) -> list[Handle]:
        """Register the hooks; remove the returned handles to end."""
        return [
            torch_module.register_module_forward_pre_hook(self._enter),
            torch_module.register_module_forward_hook(self._leave, always_call=True),
            Unwarned(),
        ]

    def reset(self) -> None:
        """Forget an entry that never came back (KeyboardInterrupt inside a forward)."""
        self._module = None
        self._depth = 0
        self._thread = threading.get_ident()

    @property
    def inside(self) -> bool:
        """Is a recorded module running now?"""
        return self._module is not None

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():  # first of all: a trace must see nothing of us
            return
        if self._module is not None:
            if module is self._module and threading.get_ident() == self._thread:
                self._depth += 1
            return
        if threading.get_ident() != self._thread:
            return
        if torch._C._current_autograd_node() is not None:
            return
        with guarded("forward probe", self._faults):
            place = self._members.find(module)
            if place is None:
                return
            self._outer_error = sys.exc_info()[1]
            kwargs = _keyword_arguments()
            if kwargs is None:
                self._faults["keyword arguments of calls not visible in this torch"] += 1
            try:
                self._listener.call_opened(*place, module, args, kwargs or {})
            finally:
                self._module, self._depth = module, 1

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:  # noqa: ARG002 - torch's signature
        if torch.compiler.is_compiling():
            return
        if module is not self._module or threading.get_ident() != self._thread:
            return
        self._depth -= 1
        if self._depth:
            return
        self._module = None
        error = sys.exc_info()[1]
        with guarded("forward probe", self._faults):
            raised = error if error is not self._outer_error else None
            self._outer_error = None
            self._listener.call_closed(output, raised)


def _keyword_arguments() -> dict[str, Any] | None:
    """Keyword arguments of the `Module.__call__` whose pre-hook is running, None if not found."""
    frame = sys._getframe(1)
    for _ in range(4):
        if frame.f_code.co_filename == torch_module.__file__ and "kwargs" in frame.f_locals:
            found = frame.f_locals["kwargs"]
            return found if isinstance(found, dict) else None
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
