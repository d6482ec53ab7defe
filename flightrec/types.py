"""The values that travel through the whole system; numpy only, no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import unquote

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

# Shape letters: S = sites in execution order, K = statistics (columns of Stat), T = steps.

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
"""What `json.dumps` takes; non-finite floats are tagged by `tree`, never bare."""

SiteKind: TypeAlias = Literal[
    "input",
    "output",
    "grad_output",
    "grad_input",
    "param",
    "param_grad",
    "buffer",
    "loss",
    "value",
]

SITE_KINDS: tuple[SiteKind, ...] = (
    "input",
    "output",
    "grad_output",
    "grad_input",
    "param",
    "param_grad",
    "buffer",
    "loss",
    "value",
)


class Stat(IntEnum):
    """Columns of a statistics matrix; append, never reorder."""

    NAN = 0
    INF = 1
    ZERO_FRACTION = 2
    MIN = 3
    MAX = 4
    ABSMAX = 5
    MEAN = 6
    STD = 7
    L2 = 8
    NUMEL = 9


_ESCAPES = {"%": "%25", ":": "%3A", "#": "%23"}


def _escape(text: str) -> str:
    return re.sub("[%:#]", lambda found: _ESCAPES[found.group()], text)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Site:
    """One place where numbers are watched; its text form round-trips.

    The text is `module:kind:leaf#call`, with `:`, `#` and `%` in names percent-escaped.
    """

    module: str
    """Dotted name as in `named_modules()`, `""` for the root; `key.name` with several roots."""

    kind: SiteKind
    """What is watched there."""

    leaf: str = ""
    """Pytree path such as `['past']['values']`, or a parameter's or buffer's own name."""

    call: int = 0
    """Which call of that module in the step, from 0."""

    def __str__(self) -> str:
        """Return the text form."""
        return f"{_escape(self.module)}:{self.kind}:{_escape(self.leaf)}#{self.call}"

    @classmethod
    def parse(cls, text: str) -> Site:
        """Read a text form back; raises `ValueError` naming what was received."""
        head, _, call = text.rpartition("#")
        parts = head.split(":")
        if len(parts) != 3 or not call.isdigit() or parts[1] not in SITE_KINDS:
            raise ValueError(f"a site looks like module:kind:leaf#call, got {text!r}")
        module, kind, leaf = parts
        return cls(module=unquote(module), kind=kind, leaf=unquote(leaf), call=int(call))  # type: ignore[arg-type]


def public_name(root: str, name: str) -> str:
    """Join a root's key and a dotted name for people: `key.name` with several roots."""
    return f"{root}.{name}" if root and name else root or name


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """What is kept of one step besides its tensors."""

    step: int
    """Counted from 0, or the number given by the user."""

    loss: float | None = None
    """The last value given to `recorder.loss`, None where none was given."""

    grad_norm: float | None = None
    """L2 norm over all gradients at the end of the last backward, before any clipping."""

    lr: float | None = None
    """Learning rate of the first group of the first optimizer at its last step."""

    updated: bool = False
    """Did an optimizer step happen in this step?"""

    seconds: float = 0.0
    """Wall-clock time of the step."""

    times: Mapping[str, float] = field(default_factory=dict)
    """Seconds by part: data, forward, backward, optimizer, recorder."""

    scalars: Mapping[str, float] = field(default_factory=dict)
    """Values given to `recorder.log`."""

    sites: tuple[Site, ...] = ()
    """Rows of `stats_SK`, in execution order."""

    stats_SK: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, len(Stat))))
    """Statistics of the watched sites; NaN where a column was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The recent steps, oldest first; the newest is the one being judged."""

    steps: tuple[StepRecord, ...]

    facts: Mapping[str, bool] = field(default_factory=dict)
    """Yes-or-no facts about the newest step that no statistic carries; see `detectors`."""

    known_bad: frozenset[Site] = frozenset()
    """Sites that held NaN or infinity before the run began, such as a buffer with a mask."""

    early: tuple[StepRecord, ...] = ()
    """The first steps of the run, oldest first: how large losses and gradients were when nothing
    had been learned. Empty where nobody kept them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A detector's statement: this site, this step, this value against this limit."""

    detector: str
    site: Site | None
    step: int
    value: float
    limit: float
    kind: str
    """What it would make the incident: nan, inf, zeroed, loss_spike, exploding_grad, ..."""

    level: Literal["note", "capture"] = "capture"
    text: str = ""
    """One sentence for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """One tensor as it was: which bytes, read how."""

    storage: int
    """Index into the storages; -1 for a tensor without elements or without data (meta)."""

    dtype: str
    """Name as in torch, without `torch.`: `float32`, `bfloat16`, `float8_e4m3fn`."""

    offset: int
    """First element, counted in elements of `dtype` from the start of the storage."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    object: int
    """Tensors with equal numbers were one Python object."""

    requires_grad: bool = False
    device: str = "cpu"
    role: str = "value"
    """param, buffer, input, output, grad, grad_output, rng, value."""

    name: str = ""
    """Where it was found: `encoder.weight`, or `args[0]['x']`."""

    reliable: bool = True
    """False where it was kept by reference and changed before it could be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageData:
    """One block of bytes, ready to be written."""

    data: NDArray[np.uint8]
    """Shape (nbytes,), C-contiguous."""

    dtype: str
    """Element type that most tensors on it have; decides the shuffle width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One failure, complete in memory, ready for a writer.

    `manifest` holds everything except `storages`, `tensors` and the bytes themselves, which
    the writer adds; see schemas/incident.schema.json.
    """

    id: str
    manifest: Mapping[str, Any]
    storages: tuple[StorageData, ...]
    tensors: tuple[TensorRef, ...]
    sites: tuple[Site, ...] = ()
    stats_TSK: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0, len(Stat))))
    """Statistics of the steps of the ring; T follows `manifest["steps"]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A place in source code: path relative to the repository where there is one."""

    file: str
    line: int
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One experiment or observation that supports a verdict."""

    kind: str
    text: str
    value: float | int | str | bool | None = None


Status: TypeAlias = Literal["reproduced", "not_reproduced", "diverged", "unsupported"]
Fidelity: TypeAlias = Literal["bit_exact", "close", "diverged"]
GradientFidelity: TypeAlias = Literal["bit_exact", "close", "diverged", "unavailable", "none"]
Phase: TypeAlias = Literal["data", "parameter", "forward", "loss", "backward", "optimizer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What replay concludes; the fields and their meaning are DESIGN section 8."""

    incident_id: str
    status: Status
    fidelity: Fidelity
    gradients: GradientFidelity
    kind: str
    step: int
    noticed_step: int
    max_ulp: int = 0
    phase: Phase | None = None
    rank: int = 0
    module: str | None = None
    module_type: str | None = None
    call: int | None = None
    root_call: int | None = None
    op: str | None = None
    backward_of: str | None = None
    source: SourceLine | None = None
    sample: int | None = None
    index: tuple[int, ...] | None = None
    confirmed: bool = False
    evidence: tuple[Evidence, ...] = ()
    first_divergence: str | None = None
    forward_passes: int = 0
    seconds: float = 0.0
