"""Decides which classes and functions an incident may name, and resolves those, never others."""

from __future__ import annotations

import functools
import os
import re
import sys
import tomllib
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torch import nn

from flightrec.errors import CodeMissingError, CorruptIncidentError, UntrustedNameError, UsageError
from flightrec.importing import import_module, locate
from flightrec.needs import (
    Need,
    Role,
    is_forward,
    is_listed,
    is_name,
    is_named,
    listed,
    listed_functions,
    never,
)
from flightrec.recorded import Code, RecordedCode
from flightrec.script import ADVICE, loose_statement
from flightrec.source import SCRIPT_MODULES, definitions, file_text, is_installed, repository_root
from flightrec.tree.naming import class_name, mro

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_Cached = type(functools.cache(len))


class Trust:
    """Answers for one incident who is trusted, and hands out classes and functions.

    A name is resolved only if what is found under it bears the same `__module__` and
    `__qualname__`. Classes with a `__del__` anywhere in their bases are never handed out.
    """

    def __init__(
        self,
        *,
        own: bool = False,
        names: Sequence[str] = (),
        root: Path | None = None,
        code: Code = "installed",
        sources: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Trust library code, and more.

        `own` says that the incident bears the user's own HMAC. `names` are packages or modules,
        or `"."` for files below `root` (the current directory). `sources` is the list in the
        manifest, used to find moved files, to report changes, and with `code="recorded"`.
        Raises `UsageError` for something that is no name.
        """
        for name in names:
            if name != "." and not is_name(name):
                raise UsageError(f"--trust takes a package, a module or '.', got {name!r}")
        if code not in ("installed", "recorded"):
            raise UsageError(f"--code takes installed or recorded, got {code!r}")
        self.own = own
        self.names = tuple(names)
        self.root = (root or Path.cwd()).resolve()
        self._code = RecordedCode(sources=sources, root=self.root, code=code, may_run=self._may_run)
        self._found: dict[Need, Any] = {}

    @classmethod
    def from_settings(
        cls,
        *,
        own: bool = False,
        names: Sequence[str] = (),
        root: Path | None = None,
        code: Code = "installed",
        sources: Sequence[Mapping[str, Any]] = (),
    ) -> Trust:
        """Add what FLIGHTREC_TRUST and `[tool.flightrec] trust` of pyproject.toml name."""
        root = (root or Path.cwd()).resolve()
        spoken = re.split(r"[\s,;:]+", os.environ.get("FLIGHTREC_TRUST", ""))
        every = [*names, *filter(None, spoken), *_project_names(root)]
        return cls(own=own, names=list(dict.fromkeys(every)), root=root, code=code, sources=sources)

    @classmethod
    def for_manifest(
        cls,
        manifest: Mapping[str, Any],
        *,
        own: bool = False,
        names: Sequence[str] = (),
        root: Path | None = None,
        code: Code = "installed",
    ) -> Trust:
        """Do as `from_settings`, with the sources and files of an incident's manifest."""
        model = manifest.get("model") or {}
        made = cls.from_settings(
            own=own, names=names, root=root, code=code, sources=model.get("sources") or ()
        )
        roots = model.get("roots")
        if isinstance(roots, dict):
            made.learn(files_of(roots))
        return made

    @property
    def changed(self) -> list[str]:
        """Names of resolved classes and functions whose text differs from the recorded one."""
        return self._code.changed

    def learn(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the `files` of a model node, which say where its modules lay."""
        self._code.learn(files)

    def check(self, needs: Iterable[Need]) -> None:
        """Raise `UntrustedNameError` with all names that are not trusted; imports nothing."""
        wanted = sorted(set(needs))
        refused = [(need, why) for need in wanted if (why := never(need)) is not None]
        if refused:
            told = "; ".join(f"{_shown(need.name)}: {why}" for need, why in refused)
            raise UntrustedNameError(f"this incident is refused; {told}")
        unknown = [need for need in wanted if not self._is_allowed(need)]
        if unknown:
            names = ", ".join(dict.fromkeys(need.name for need in unknown))
            raise UntrustedNameError(_untrusted(names, [need.package for need in unknown]))
        self._code.want(need.qualname for need in wanted if need.module in SCRIPT_MODULES)

    def resolve_module(self, module: str, qualname: str) -> type[nn.Module]:
        """Return a subclass of `nn.Module` (or itself); raises like `resolve_class`."""
        need = Need(Role.MODULE, f"{module}:{qualname}")
        found = self._resolve(need)
        if nn.Module not in mro(found):
            raise UntrustedNameError(f"{need.name} is not a torch.nn.Module")
        return found  # type: ignore[no-any-return]

    def resolve_class(self, module: str, qualname: str) -> type:
        """Return a class.

        Raises `UntrustedNameError` where it is not trusted, `CodeMissingError` where it is not
        here.
        """
        found: type = self._resolve(Need(Role.CLASS, f"{module}:{qualname}"))
        return found

    def resolve_function(self, module: str, qualname: str) -> Callable[..., Any]:
        """Return a function; raises like `resolve_class`."""
        found: Callable[..., Any] = self._resolve(Need(Role.FUNCTION, f"{module}:{qualname}"))
        return found

    def _resolve(self, need: Need) -> Any:
        if need not in self._found:
            self.check([need])
            self._found[need] = self._look_up(need)
        return self._found[need]

    def _look_up(self, need: Need) -> Any:
        if need.role is Role.FUNCTION and need.name in listed_functions():
            return listed_functions()[need.name]
        found: Any
        if need.package in listed("libraries") or need.package in sys.stdlib_module_names:
            found = import_module(need.module)
        else:
            found = self._code.load(need.module, need.qualname)
        home = found.__name__ if need.module in SCRIPT_MODULES else need.module
        owner: Any = None
        for part in need.qualname.split("."):
            owner = found
            found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
            if isinstance(found, staticmethod | classmethod):
                found = found.__func__
        if found is None:
            raise CodeMissingError(
                f"{need.module} has no {need.qualname} any more; use the text in the incident with "
                f"--code recorded, or {ADVICE}"
            )
        if need.role is Role.FUNCTION:
            _verify_function(found, owner, home, need)
        else:
            self._verify_class(found, home, need)
        if need.package not in listed("libraries"):
            self._code.note(found, need.name)
        return found

    def _verify_class(self, found: Any, home: str, need: Need) -> None:
        if not issubclass(type(found), type) or class_name(found) != f"{home}:{need.qualname}":
            raise UntrustedNameError(f"{need.name} is not the class it is said to be")
        chain = mro(found)
        if any("__del__" in vars(base) for base in chain):
            raise UntrustedNameError(f"{need.name} has a __del__, which an incident must never run")
        if need.role is Role.MODULE or self._is_trusted(need) or is_listed(need):
            return
        families = listed("value_families")
        if not any(class_name(base) in families for base in chain):
            raise UntrustedNameError(_untrusted(need.name, [need.package]))

    def _is_trusted(self, need: Need) -> bool:
        return self.own or is_named(need.module, self.names)

    def _is_allowed(self, need: Need) -> bool:
        if is_listed(need) or self._is_trusted(need):
            return True
        if need.package in listed("libraries"):
            is_code = need.role is Role.FUNCTION and not is_forward(need)
            return not is_code and self._is_library(need)
        return "." in self.names and self._is_below(need.module)

    def _is_library(self, need: Need) -> bool:
        """Does the name lead into the installed library, to a file that defines such a class?

        What is nowhere counts as library: importing it will say that it has to be installed.
        """
        place = locate(need.module)
        if place is None or need.module in sys.modules:
            return True
        if place.path is None or place.path.suffix != ".py" or self._is_mine(place.path):
            return False
        return need.qualname in definitions(file_text(place.path))

    def _is_below(self, module: str) -> bool:
        """Does `module` lie below the trusted folder, in files that only define things?"""
        place = None if module in SCRIPT_MODULES else locate(module, [self.root])
        if place is None:
            return any(self._may_run(module, path) for path in self._code.candidates(module))
        files = [*place.files, *([place.path] if place.path else [])]
        return bool(files) and all(
            self._is_mine(path) and (module in sys.modules or not _is_loose(path)) for path in files
        )

    def _is_mine(self, path: Path) -> bool:
        full = path.resolve()
        return full.is_relative_to(self.root) and not is_installed(full)

    def _may_run(self, module: str, path: Path | None) -> bool:
        """May this user module be run from a file, or (None) from the text in the incident?"""
        package = module.partition(".")[0]
        if package in sys.stdlib_module_names or package in listed("listed_only"):
            return False
        if package in listed("libraries"):
            return False
        if self.own:
            return True
        named = is_named(module, self.names)
        if path is None:
            return named
        if not self._is_mine(path):
            return False
        return named or ("." in self.names and (module in SCRIPT_MODULES or not _is_loose(path)))


def files_of(node: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the `files` of a model node by module; raises `CorruptIncidentError`."""
    try:
        return {str(file["module"]): file for file in node["files"]}
    except (LookupError, TypeError) as fault:
        raise CorruptIncidentError(f"bad description of a model: {fault!r}") from fault


def _is_loose(path: Path) -> bool:
    return not path.is_file() or loose_statement(file_text(path)) is not None


def _verify_function(found: Any, owner: Any, home: str, need: Need) -> None:
    is_library = need.package in listed("libraries")
    if is_library and is_forward(need) and nn.Module not in mro(owner):
        raise UntrustedNameError(f"{need.name} is not the forward of a torch.nn.Module")
    known = isinstance(found, FunctionType | BuiltinFunctionType | _Cached)
    if not known or (found.__module__, found.__qualname__) != (home, need.qualname):
        raise UntrustedNameError(f"{need.name} is not the function it is said to be")


def _untrusted(names: str, packages: list[str]) -> str:
    options = " ".join(f"--trust {name}" for name in dict.fromkeys(packages))
    return (
        f"this incident needs code that nobody trusted: {names}; trust it with {options} "
        "(or --trust . for files below the current directory)"
    )


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) < 200 else repr(name)[:200]


def _project_names(root: Path) -> list[str]:
    """Return `[tool.flightrec] trust` of the nearest pyproject.toml, no higher than the repository.

    Without a repository only `root` itself counts: a folder further up may be anybody's.
    """
    top = repository_root(root) or root
    for folder in (root, *root.parents):
        file = folder / "pyproject.toml"
        if not folder.is_relative_to(top):
            break
        if not file.is_file():
            continue
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
            raise UsageError(f"{file} cannot be read: {fault}") from fault
        names = table.get("flightrec", {}).get("trust", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UsageError(f"[tool.flightrec] trust in {file} must be a list of names")
        return names
    return []
