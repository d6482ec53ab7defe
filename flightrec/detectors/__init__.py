"""Pure questions about the recent steps, one per file, and how they are chosen and written down.

Facts that a recorder knows about the newest step (`Window.facts`; absent means no):

- `backward`: a backward ended in this step.
- `update`: an optimizer's step is about to happen or happened, and no scaler skipped it.
- `learning_from_zero`: a parameter of two or more dimensions that is all zero got a gradient
  that is not.
- `trains`: there is an optimizer, so an output may still be followed by a backward.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from flightrec.errors import UnknownPluginError, UsageError
from flightrec.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flightrec.protocols import Detector
    from flightrec.types import Json

EARLY = 8
"""First steps of a run that a recorder keeps for `Window.early`."""


def select(selection: Sequence[str | Detector] | None = None) -> tuple[Detector, ...]:
    """Make the detectors of a selection, the one that names an incident first.

    None means every detector that runs by default. A name selects, `-name` drops from the
    defaults, `+name` adds to them, an instance stands for itself and replaces the default of
    its class. Raises `UnknownPluginError` listing the names there are.
    """
    items = list(selection or ())
    words = [item for item in items if isinstance(item, str)]
    registry = Registry("detectors")
    names = [word for word in words if word[0] not in "+-"]
    changes = [word for word in words if word[0] in "+-"]
    if names and changes:
        raise UsageError(f"detectors: either names, or -name and +name for the defaults; {words!r}")
    classes = [registry.load(name) for name in names]
    if not names and (changes or selection is None):
        classes = _changed([registry.load(name) for name in registry], changes, registry)
    given = [item for item in items if not isinstance(item, str)]
    kept = {cls for cls in classes if not any(type(item) is cls for item in given)}
    chosen: list[Detector] = [*(cls() for cls in classes if cls in kept), *given]
    return tuple(sorted(chosen, key=lambda one: getattr(one, "precedence", 50)))


def _changed(classes: list[Any], changes: list[str], registry: Registry) -> list[Any]:
    wanted = [cls for cls in classes if getattr(cls, "default", True)]
    for change in changes:
        cls = registry.load(change[1:].strip())
        if change[0] == "-":
            wanted = [other for other in wanted if other is not cls]
        elif cls not in wanted:
            wanted.append(cls)
    return wanted


def name_of(detector: Detector) -> str:
    """Return a detector's name: its file's, its entry point's, or `module:Class` of a stranger."""
    cls = type(detector)
    registry = Registry("detectors")
    package, _, file = cls.__module__.rpartition(".")
    if package == registry.package and file in registry:
        return file
    for name in registry.strangers():
        if registry.load(name) is cls:
            return name
    return f"{cls.__module__}:{cls.__qualname__}"


def config_of(detector: Detector) -> dict[str, Json]:
    """Return `{"name", "configuration"}`, as stored in each incident."""
    configuration = {
        field.name: _plain(getattr(detector, field.name))
        for field in fields(detector)  # type: ignore[arg-type]  # detectors are dataclasses
    }
    return {"name": name_of(detector), "configuration": configuration}


def from_config(config: Mapping[str, Any]) -> Detector:
    """Make a detector again from what `config_of` returned.

    Raises `UnknownPluginError` for a name that is not installed here, and `UsageError` for a
    setting that the detector does not have or refuses.
    """
    cls = Registry("detectors").load(config["name"])
    known = {field.name for field in fields(cls)}
    configuration = dict(config.get("configuration") or {})
    unknown = sorted(set(configuration) - known)
    if unknown:
        raise UsageError(
            f"detector {config['name']} has no setting {unknown[0]!r};"
            f" there are: {', '.join(sorted(known))}"
        )
    settings = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in configuration.items()
    }
    made: Detector = cls(**settings)
    return made


def _plain(value: object) -> Json:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise UnknownPluginError(f"a detector's settings are plain values, got {value!r}")
