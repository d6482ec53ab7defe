"""What an exception inside a re-executed call was, and in which module it rose."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from flightrec.errors import CannotRebuildError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType, TracebackType


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One line of a traceback, outermost first."""

    file: str
    line: int
    function: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception, kept as text so that it holds no tensors alive."""

    type: str
    """Qualified name: `IndexError`, `torch.OutOfMemoryError`."""

    message: str
    phase: str
    """forward, loss or backward."""

    module: str | None
    """`root:name` of the innermost module whose code was running, None outside all."""

    call: int | None = None
    """Position of the call in the episode, None outside all calls."""

    traceback: tuple[Frame, ...] = ()


def describe(
    fault: BaseException, names: Mapping[int, str], *, phase: str, call: int | None = None
) -> Raised:
    """Describe `fault`; `names` gives `root:name` by the id of a module.

    What the incident does not hold is no failure of the user's: a placeholder that was touched
    raises its `CannotRebuildError` on.
    """
    if isinstance(fault, CannotRebuildError):
        raise fault
    frames: list[Frame] = []
    module: str | None = None
    traceback: TracebackType | None = fault.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        module = names.get(id(_owner(frame)), module)
        file = frame.f_code.co_filename
        frames.append(
            Frame(
                file=file,
                line=traceback.tb_lineno,
                function=frame.f_code.co_qualname,
                code=linecache.getline(file, traceback.tb_lineno).strip(),
            )
        )
        traceback = traceback.tb_next
    kind = type(fault)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return Raised(
        type=prefix + kind.__qualname__,
        message=str(fault),
        phase=phase,
        module=module,
        call=call,
        traceback=tuple(frames),
    )


def _owner(frame: FrameType) -> object:
    """Return the module whose method runs in `frame`, None where it is no method of one."""
    owner = frame.f_locals.get("self")
    return owner if isinstance(owner, nn.Module) else None
