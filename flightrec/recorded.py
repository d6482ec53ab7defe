"""The user's code as an incident recorded it: where it lay, its text, and what has changed."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flightrec.errors import CodeMissingError
from flightrec.importing import SourceFinder, import_module, locate, search_path
from flightrec.script import ADVICE, load_script
from flightrec.source import (
    SCRIPT_MODULES,
    file_text,
    module_file,
    repository_root,
    source_files,
    source_text,
    text_hash,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Code: TypeAlias = Literal["installed", "recorded"]
"""Use the code that is here, or the text that the incident holds."""


class RecordedCode:
    """Loads user modules by name, from their recorded place, or from their recorded text."""

    def __init__(
        self,
        *,
        sources: Sequence[Mapping[str, Any]],
        root: Path,
        code: Code,
        may_run: Callable[[str, Path | None], bool],
    ) -> None:
        """Take the manifest's `sources`.

        `may_run(module, path)` says whether a module may be run from a file or, with None, from
        its recorded text.
        """
        self._texts = {str(entry.get("name")): entry for entry in sources}
        self._files: dict[str, Mapping[str, Any]] = {}
        self._root = root
        self._code = code
        self._may_run = may_run
        self._wanted: set[str] = set()
        self._scripts: dict[str, tuple[ModuleType, frozenset[str]]] = {}
        self._private: dict[str, ModuleType] = {}
        self.changed: list[str] = []
        """Names of classes and functions whose text here differs from the recorded one."""

    def learn(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the `files` of a model node: where its modules lay, and the hash of their text."""
        self._files.update(files)

    def want(self, names: Iterable[str]) -> None:
        """Note qualified names that a script is to define, so that it is loaded once for all."""
        self._wanted.update(name.partition(".")[0] for name in names)

    def candidates(self, module: str) -> list[Path]:
        """Return files that may hold a module that no name leads to: recorded place, same repo."""
        found = []
        path = self._files.get(module, {}).get("path")
        if isinstance(path, str):
            found.append(Path(path))
        relative = self._texts.get(module, {}).get("file")
        if isinstance(relative, str) and not relative.startswith("<"):
            found += [base / relative for base in (self._root, repository_root(self._root)) if base]
        return [path for path in dict.fromkeys(found) if path.is_file()]

    def folders(self) -> list[Path]:
        """Return the folders on which user code is looked for before Python's own."""
        found = [self._root]
        for name in sorted(self._modules()):
            for path in self.candidates(name)[:1]:
                folder = _import_root(name, path, self._files.get(name, {}).get("package"))
                if folder is not None and self._may_run(name, path):
                    found.append(folder)
        return list(dict.fromkeys(found))

    def load(self, module: str, qualname: str) -> ModuleType:
        """Return the module that should define `qualname`; raises `CodeMissingError`."""
        if module in SCRIPT_MODULES:
            return self._load_script(module, qualname)
        loaded = sys.modules.get(module)
        if loaded is not None:
            if self._code == "recorded" and not self._is_unchanged(module, module_file(module)):
                return self._load_private(module) or loaded
            return loaded
        return import_module(module, self.folders(), self._finder())

    def _finder(self) -> SourceFinder:
        packages = {name[:dot] for name in self._modules() for dot in _dots(name)}
        return SourceFinder(self._provide, frozenset(packages))

    def _modules(self) -> set[str]:
        return {*self._files, *(name for name in self._texts if ":" not in name)}

    def note(self, obj: Any, name: str) -> None:
        """Compare the text of a resolved class or function with the recorded one."""
        entry = self._texts.get(name)
        if entry is None or self._code == "recorded" or name in self.changed:
            return
        for file in source_files(obj):
            linecache.checkcache(file)
        here = source_text(obj)
        if here is not None and here.text.strip() != str(entry.get("text")).strip():
            self.changed.append(name)

    def _is_unchanged(self, module: str, path: Path | None) -> bool:
        recorded = self._files.get(module, {}).get("hash")
        text = self._texts.get(module, {}).get("text")
        if recorded is None and isinstance(text, str):
            recorded = text_hash(text)
        return path is not None and text_hash(file_text(path)) == recorded

    def _recorded_text(self, module: str) -> tuple[str, str] | None:
        text = self._texts.get(module, {}).get("text")
        if not isinstance(text, str) or not self._may_run(module, None):
            return None
        path = self._files.get(module, {}).get("path")
        return text, path if isinstance(path, str) else f"<recorded {module}>"

    def _provide(self, module: str) -> tuple[str, str] | None:
        """Give `SourceFinder` the text of a module that Python would not find, or find wrongly."""
        if self._code == "recorded":
            return self._recorded_text(module)
        if module not in self._files and module not in self._texts:
            return None
        found = locate(module, self.folders())
        if found is not None and self._is_unchanged(module, found.path):
            return None
        for path in self.candidates(module):
            if self._is_unchanged(module, path) and self._may_run(module, path):
                return file_text(path), str(path)
        return None

    def _load_private(self, module: str) -> ModuleType | None:
        """Run the recorded text beside a module of that name that is loaded already."""
        if module not in self._private:
            provided = self._recorded_text(module)
            if provided is None:
                return None
            finder = SourceFinder(lambda _name: provided, frozenset())
            fresh = ModuleType(module)
            fresh.__package__ = self._files.get(module, {}).get("package", "")
            finder.find_spec(module, None)
            finder.exec_module(fresh)
            self._private[module] = fresh
        return self._private[module]

    def _load_script(self, module: str, qualname: str) -> ModuleType:
        live = sys.modules.get(module)
        top = qualname.partition(".")[0]
        if self._code == "installed" and live is not None and hasattr(live, top):
            recorded = self._files.get(module, {}).get("path")
            file = module_file(module)
            if recorded == (None if file is None else str(file)):
                return live
        self._wanted.add(top)
        done = self._scripts.get(module)
        if done is not None and top in done[1]:
            return done[0]
        text, filename = self._script_text(module)
        wanted = frozenset(self._wanted)
        package = self._files.get(module, {}).get("package", "")
        with search_path(self.folders(), self._finder()):
            script = load_script(text, filename=filename, wanted=sorted(wanted), package=package)
        self._scripts[module] = script, wanted
        return script

    def _script_text(self, module: str) -> tuple[str, str]:
        if self._code == "recorded":
            provided = self._recorded_text(module)
            if provided is None:
                raise CodeMissingError(f"the text of {module} was not recorded; {ADVICE}")
            return provided
        for path in self.candidates(module):
            if self._may_run(module, path):
                return file_text(path), str(path)
        raise CodeMissingError(
            f"the script that defined {module} is not here; use the text in the incident with "
            f"--code recorded, or {ADVICE}"
        )


def _dots(name: str) -> list[int]:
    return [index for index, letter in enumerate(name) if letter == "."]


def _import_root(module: str, path: Path, package: Any) -> Path | None:
    """Return the folder from which `module` would be imported if it lies at `path`."""
    if module in SCRIPT_MODULES:
        depth = len(package.split(".")) if isinstance(package, str) and package else 0
        return path.parents[depth] if depth < len(path.parents) else None
    parts = module.split(".")
    stem = path.parent if path.name == "__init__.py" else path.with_suffix("")
    if list(stem.parts[-len(parts) :]) != parts:
        return None
    return stem.parents[len(parts) - 1]
