"""Finds modules without running anything, and imports user code from where it was recorded."""

from __future__ import annotations

import importlib
import linecache
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING

from flightrec.errors import CodeMissingError
from flightrec.source import file_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a module lies; `files` are those that importing it would run, parents first."""

    path: Path | None
    """Its own file, None for a namespace package or one built into Python."""

    files: tuple[Path, ...]


def locate(module: str, extra: Sequence[Path] = ()) -> Location | None:
    """Find `module` on `extra` folders, then where Python looks, and import nothing.

    None where it, or a package that it is inside, is nowhere.
    """
    search: Sequence[str] | None = None
    files: list[Path] = []
    path: Path | None = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        found = _look_up(name, search, extra)
        if found is None:
            return None
        path, search = found
        if path is not None and name not in sys.modules:
            files.append(path)
        if search is None and end < len(parts):
            return None
    return Location(path=path, files=tuple(files))


def _look_up(
    name: str, search: Sequence[str] | None, extra: Sequence[Path]
) -> tuple[Path | None, Sequence[str] | None] | None:
    loaded = sys.modules.get(name)
    if loaded is not None:
        file = getattr(loaded, "__file__", None)
        folders = getattr(loaded, "__path__", None)
        return (Path(file) if file else None), (None if folders is None else list(folders))
    spec = _find_spec(name, search, extra)
    if spec is None:
        return None
    folders = spec.submodule_search_locations
    path = Path(spec.origin) if spec.has_location and spec.origin else None
    return path, (None if folders is None else list(folders))


def _find_spec(name: str, search: Sequence[str] | None, extra: Sequence[Path]) -> ModuleSpec | None:
    if search is None and extra:
        spec = PathFinder.find_spec(name, [str(folder) for folder in extra])
        if spec is not None:
            return spec
    for finder in sys.meta_path:
        if isinstance(finder, SourceFinder):
            continue
        spec = finder.find_spec(name, search, None)
        if spec is not None:
            return spec
    return None


class SourceFinder(MetaPathFinder, Loader):
    """Gives the import system text from `provide`, ahead of everything else, while it is active."""

    def __init__(
        self, provide: Callable[[str], tuple[str, str] | None], packages: frozenset[str]
    ) -> None:
        """Take `provide(module) -> (text, file name) or None`, and names of empty packages.

        The packages are parents of modules that `provide` knows; they are made up where Python
        does not find them.
        """
        self._provide = provide
        self._packages = packages
        self._ready: dict[str, tuple[str, str]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for what `provide` knows."""
        provided = self._provide(fullname)
        is_package = fullname in self._packages
        if provided is None:
            if not is_package or _find_spec(fullname, path, ()) is not None:
                return None
            provided = "", f"<package {fullname}>"
        self._ready[fullname] = provided
        spec = spec_from_loader(fullname, self, origin=provided[1], is_package=is_package)
        file = Path(provided[1])
        if spec is not None and is_package and file.is_file():
            spec.submodule_search_locations = [str(file.parent)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the text."""
        text, filename = self._ready.pop(module.__name__)
        module.__file__ = filename
        if file_text(Path(filename)) != text:
            lines = text.splitlines(keepends=True)
            linecache.cache[filename] = (len(text), None, lines, filename)
        exec(compile(text, filename, "exec"), vars(module))


@contextmanager
def search_path(extra: Sequence[Path], finder: SourceFinder | None) -> Iterator[None]:
    """Import from `extra` and `finder` first, as from a script's own folder.

    Afterwards `extra` stays, but last, for what is imported when something runs.
    """
    added = [str(folder) for folder in extra if str(folder) not in sys.path]
    sys.path[:0] = added
    if finder is not None:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder is not None:
            sys.meta_path.remove(finder)
        for folder in added:
            sys.path.remove(folder)
            sys.path.append(folder)


def import_module(
    module: str, extra: Sequence[Path] = (), finder: SourceFinder | None = None
) -> ModuleType:
    """Import `module`; whatever it raises becomes a `CodeMissingError` that says what to do."""
    importlib.invalidate_caches()
    try:
        with search_path(extra, finder):
            return importlib.import_module(module)
    except ModuleNotFoundError as fault:
        top = module.partition(".")[0]
        if fault.name is not None and module.startswith(fault.name):
            raise CodeMissingError(
                f"{module} is not here: install {top}, or pass the model with "
                "--model package.module:factory, or use the recorded text with --code recorded"
            ) from fault
        raise CodeMissingError(f"{module} needs {fault.name}, which is not installed") from fault
    except (Exception, SystemExit) as fault:
        raise CodeMissingError(
            f"{module} cannot be imported: {fault!r}; "
            "pass the model with --model package.module:factory"
        ) from fault
