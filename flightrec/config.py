"""Every setting of a recorder, checked when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from flightrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flightrec.protocols import Detector, Sink
    from flightrec.types import Json

Weights: TypeAlias = Literal["auto", "full", "reference", "none"]
Stats: TypeAlias = Literal["auto", "off", "every-step"]
CheckTime: TypeAlias = Literal["auto", "before_step", "async"]
OnIncident: TypeAlias = Literal["continue", "raise", "skip", "breakpoint"]

MIB = 2**20

WHOLE_NUMBERS = (
    "ring_steps",
    "ring_bytes",
    "device_bytes",
    "anchor_every",
    "max_incidents",
    "incident_bytes",
    "diff_bytes",
)
"""Options that take a whole number of at least 1."""

WORDS: dict[str, tuple[str, ...]] = {
    "weights": get_args(Weights),
    "stats": get_args(Stats),
    "check": get_args(CheckTime),
}
"""Options that take one of a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `FlightRecorder`, apart from the store and the objects it watches.

    Raises `UsageError`, which is a `ValueError`, with the option's name and what it got.
    """

    run: str | None = None
    """Name of the run; None makes one from the time and the script."""

    detectors: Sequence[str | Detector] | None = None
    """None: all that run by default. Names select, `-name` drops one from the defaults, `+name`
    adds one to them, and an instance of a detector stands for itself with its settings."""

    sinks: Sequence[str | Sink] = ()
    """Live outputs: names of plug-ins, or configured instances."""

    ring_steps: int = 8
    """Newest steps whose inputs are kept, so that healthy ones can be compared."""

    ring_bytes: int = 256 * MIB
    """Host memory for those steps; the oldest go first."""

    device_bytes: int = 256 * MIB
    """Memory on the device for output gradients and statistics of the newest segment."""

    anchor_every: int = 50
    """Steps between two copies of weights, buffers and optimizer, for rewinding."""

    weights: Weights = "auto"
    """What an incident holds of the weights: `full` everything, `reference` frozen and huge parts
    by path and hash of a checkpoint, `none` nothing, `auto` full while it fits."""

    stats: Stats = "auto"
    """Statistics of inner layers: sampled within `max_overhead`, `off`, or `every-step`."""

    check: CheckTime = "auto"
    """When findings are read on a GPU: `before_step` costs one host sync per step and keeps the
    weights that failed, `async` costs none and is one step late."""

    max_overhead: float = 0.02
    """Share of the step time that sampled statistics may take, from 0 to 1."""

    max_incidents: int = 20
    """Incidents written per run; further ones are counted."""

    on_incident: OnIncident | Callable[[Any], object] = "continue"
    """`continue`; `raise` IncidentError when the step ends; `skip` the optimizer's step;
    `breakpoint`; or a function that is called with the `Incident`."""

    incident_bytes: int = 4096 * MIB
    """Largest incident to write; what does not fit is left out and named in its manifest."""

    code: bool = True
    """Record the commit and the uncommitted diff of the script's repository?"""

    diff_bytes: int = MIB // 4
    """Bytes of the diff that are kept; the rest is cut off and marked."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be meant, naming the option and the value."""
        for name in WHOLE_NUMBERS:
            _whole_number(name, getattr(self, name))
        for name, words in WORDS.items():
            _word(name, getattr(self, name), words)
        _share("max_overhead", self.max_overhead)
        if not callable(self.on_incident):
            _word("on_incident", self.on_incident, get_args(OnIncident), "or a callable")
        _name("run", self.run)
        _yes_or_no("code", self.code)
        if self.detectors is not None:
            _plugins("detectors", self.detectors, "check")
        _plugins("sinks", self.sinks, "write")

    @classmethod
    def of(cls, **options: object) -> Settings:
        """Make settings from keywords of a user; an unknown one lists those there are."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise UsageError(f"no option {name!r}; there are: {', '.join(sorted(known))}")
        return cls(**options)  # type: ignore[arg-type]  # checked in __post_init__

    def not_yet(self) -> list[str]:
        """Name the settings that are taken but not followed yet, and what happens instead."""
        notes = []
        if self.weights == "reference":
            notes.append("weights='reference' is stored in full")
        if self.check == "async":
            notes.append("check='async' checks before the step")
        if self.stats == "every-step":
            notes.append("stats='every-step' measures no inner layers; replay does")
        return notes

    def to_json(self) -> dict[str, Json]:
        """Return the settings for the manifest; objects become `module:name`."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _whole_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name} must be a whole number of at least 1, got {value!r}")


def _name(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise UsageError(f"{name} must be a name that is not empty, got {value!r}")


def _yes_or_no(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, got {value!r}")


def _word(name: str, value: object, words: Sequence[str], more: str = "") -> None:
    if not isinstance(value, str) or value not in words:
        allowed = ", ".join(words) + (f", {more}" if more else "")
        raise UsageError(f"{name} must be one of {allowed}; got {value!r}")


def _share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise UsageError(f"{name} must be above 0 and at most 1, got {value!r}")


def _plugins(name: str, value: object, method: str) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UsageError(f"{name} must be a list of names or of objects, got {value!r}")
    for item in value:
        is_object = not isinstance(item, type) and callable(getattr(item, method, None))
        if not is_object and not (isinstance(item, str) and item.strip("+- ")):
            raise UsageError(
                f"{name} takes names of plug-ins and objects with a method {method!r}, got {item!r}"
            )


def _plain(value: object) -> Json:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '?')}:{getattr(named, '__qualname__', '?')}"
