"""Find the line of the user's own code that an operator comes from."""

from __future__ import annotations

import linecache
import os
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from flightrec.source import relative_path
from flightrec.types import SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType, FrameType

    from replay.raised import Frame

_TORCH = str(Path(torch.__file__).parent) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_OURS = str(Path(__file__).parent) + os.sep
_ENGINE = str(Path(__file__).with_name("rerun.py"))

_ELSEWHERE = "-packages/torch/"
"""Part of torch's path on the machine that a recorded traceback comes from."""

_PASS, _STOP, _USER = range(3)
_KINDS: dict[CodeType, int] = {}


def _kind(file: str) -> int:
    """Tell the user's files (and other libraries') from torch, Python, and our own."""
    if file == _ENGINE:
        return _STOP
    if file.startswith((_TORCH, _OURS, "<")) or _ELSEWHERE in file:
        return _PASS
    if file.startswith(_STDLIB) and "-packages" not in file[len(_STDLIB) :]:
        return _PASS
    return _USER


def nearest(frame: FrameType | None) -> tuple[str, int] | None:
    """Return file and line of the nearest frame of the user; the walk ends at our engine."""
    while frame is not None:
        code = frame.f_code
        kind = _KINDS.get(code)
        if kind is None:
            kind = _KINDS[code] = _kind(code.co_filename)
        if kind == _USER:
            return code.co_filename, frame.f_lineno
        if kind == _STOP:
            return None
        frame = frame.f_back
    return None


def recomputing(frame: FrameType | None) -> bool:
    """Is activation checkpointing at work between this frame and our engine?"""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith("checkpoint.py") or "checkpoint" in frame.f_code.co_name:
            return True
        if file == _ENGINE:
            return False
        frame = frame.f_back
    return False


def source_line(place: tuple[str, int] | None) -> SourceLine | None:
    """Return a place with its text, the path relative to its repository."""
    if place is None:
        return None
    file, line = place
    return SourceLine(
        file=relative_path(file), line=line, code=linecache.getline(file, line).strip()
    )


def innermost(frames: Iterable[Frame]) -> tuple[str, int] | None:
    """Return the user's place nearest to where an exception rose."""
    places = [(frame.file, frame.line) for frame in frames if _kind(frame.file) == _USER]
    return places[-1] if places else None
