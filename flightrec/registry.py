"""Which plug-ins there are, listed without importing them, and one of them on request."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flightrec.errors import MissingExtraError, UnknownPluginError

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTRIBUTION = "torch-flightrec"
OWN_PACKAGES = ("flightrec", "replay", "schemas")

KINDS: dict[str, tuple[str, str]] = {
    "detectors": ("flightrec.detectors", "Detector"),
    "triggers": ("flightrec.triggers", "install"),
    "sinks": ("flightrec.sinks", "Sink"),
    "stores": ("flightrec.stores", "Store"),
    "integrations": ("flightrec.integrations", "Integration"),
    "preflight": ("flightrec.preflight", "check"),
    "cli": ("flightrec.cli", "command"),
    "reporters": ("replay.reporters", "render"),
}
"""Kind -> (package whose files are the plug-ins, name each file must define)."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The plug-ins of one kind: files of a package, and entry points of strangers.

    A file `flightrec/detectors/nonfinite.py` is the plug-in `nonfinite`; a file whose name
    starts with an underscore is not a plug-in. Another distribution adds one with an entry
    point in the group `flightrec.<kind>`, which names a module or the object itself. Where
    both use a name, the file of this project is meant.
    """

    kind: str
    """One of `KINDS`: detectors, triggers, sinks, stores, cli, reporters, ..."""

    def __post_init__(self) -> None:
        """Refuse a kind that nothing looks for."""
        if self.kind not in KINDS:
            raise UnknownPluginError(
                f"no kind of plug-in is called {self.kind!r}; there are {', '.join(sorted(KINDS))}"
            )

    @property
    def package(self) -> str:
        """Dotted name of the package whose files are looked at."""
        return KINDS[self.kind][0]

    @property
    def attribute(self) -> str:
        """Name that a plug-in's module must define."""
        return KINDS[self.kind][1]

    @property
    def group(self) -> str:
        """Entry point group that third parties use."""
        return f"flightrec.{self.kind}"

    def names(self) -> tuple[str, ...]:
        """Return the names of all plug-ins, sorted; nothing is imported."""
        return tuple(sorted({*self._files(), *self._entry_points()}))

    def strangers(self) -> tuple[str, ...]:
        """Return the names that come from entry points of other distributions, sorted."""
        return tuple(sorted(set(self._entry_points()) - self._files()))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        """Is there a plug-in of that name?"""
        return name in self.names()

    def load(self, name: str) -> Any:
        """Import one plug-in and return what it defines under `attribute`.

        Raises `UnknownPluginError` listing the names there are, and `MissingExtraError` with
        the pip command when a package that the plug-in needs is not installed.
        """
        loaded = self._load(name)
        if not isinstance(loaded, ModuleType):
            return loaded
        try:
            return getattr(loaded, self.attribute)
        except AttributeError:
            raise UnknownPluginError(
                f"{loaded.__name__} is no plug-in of kind {self.kind!r}:"
                f" it does not define {self.attribute!r}"
            ) from None

    def _load(self, name: str) -> Any:
        entry = self._entry_points().get(name)
        is_file = name in self._files()
        if entry is None and not is_file:
            known = ", ".join(self.names()) or "none"
            raise UnknownPluginError(
                f"no plug-in called {name!r} among the {self.kind}; there are: {known}"
            )
        importlib.invalidate_caches()
        try:
            if is_file or entry is None:
                return importlib.import_module(f"{self.package}.{name}")
            return entry.load()
        except ModuleNotFoundError as missing:
            package = (missing.name or "").partition(".")[0]
            if not package or package in OWN_PACKAGES:
                raise
            raise MissingExtraError(
                f"{name!r} (of the {self.kind}) needs the package {package!r},"
                f" which is not installed: {pip_command(package)}"
            ) from missing

    def _files(self) -> frozenset[str]:
        folders = _folders(self.package)
        found = pkgutil.iter_modules([str(folder) for folder in folders])
        return frozenset(entry.name for entry in found if not entry.name.startswith("_"))

    def _entry_points(self) -> dict[str, metadata.EntryPoint]:
        return _entry_points(self.group, tuple(sys.path))


def pip_command(package: str) -> str:
    """Return the command that installs `package`, through our extra where one has it."""
    wanted = _normalized(package)
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        requirements = []
    for line in requirements:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", line)
        if name and extra and _normalized(name.group()) == wanted:
            return f"pip install '{DISTRIBUTION}[{extra.group(1)}]'"
    return f"pip install {package}"


@functools.cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, metadata.EntryPoint]:  # noqa: ARG001 - another path finds other distributions
    """Ask every installed distribution, which takes milliseconds, once per search path."""
    return {entry.name: entry for entry in metadata.entry_points(group=group)}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _folders(package: str) -> list[Path]:
    """Find the folders of a package without importing it or its parent."""
    top, _, rest = package.partition(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.submodule_search_locations is None:
        return []
    parts = rest.split(".") if rest else []
    return [Path(location, *parts) for location in spec.submodule_search_locations]
