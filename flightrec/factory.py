"""A function that the user names to make the model, instead of the recorded description."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flightrec.errors import CodeMissingError, UsageError
from flightrec.importing import import_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def load_factory(spec: str, *, root: Path | None = None) -> Callable[[], Any]:
    """Import `package.module:factory` or `path/to/file.py:factory` and return the factory.

    Names are looked for below `root` (the current directory) first. The user typed the name, so
    it is imported as any import would, statements at its top level included.
    Raises `UsageError` for something else, `CodeMissingError` where there is no such module or
    name in it.
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"--model takes package.module:factory, got {spec!r}")
    folder = (root or Path.cwd()).resolve()
    if place.endswith(".py"):
        found: Any = _load_file(folder / place)
    else:
        found = import_module(place, [folder])
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise CodeMissingError(f"{place} has no function {name}, which --model names")
    return found  # type: ignore[no-any-return]


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise CodeMissingError(f"{path}, which --model names, is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as fault:
        del sys.modules[path.stem]
        raise CodeMissingError(f"{path} cannot be run: {fault!r}") from fault
    return module
