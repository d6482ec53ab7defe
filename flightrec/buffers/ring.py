"""The recent steps as they were recorded, and the ring that keeps the last of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flightrec.types import StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flightrec.probes.state import StateSnapshot
    from flightrec.rng import RngState
    from flightrec.tree import TensorTable
    from flightrec.types import Json


@dataclass(frozen=True, slots=True)
class Encoded:
    """A nested value as it was: its structure, and the table that has its tensors."""

    node: Json
    table: TensorTable


@dataclass(slots=True)
class OutputRecord:
    """One tensor that a call returned; kept by reference until its segment is over."""

    leaf: str
    tensor: torch.Tensor
    """Detached alias, same memory as the user's tensor."""

    version: int
    requires_grad: bool


@dataclass(slots=True)
class CallRecord:
    """One entry from outside into a recorded module."""

    index: int
    """Counted within the segment."""

    serial: int
    """Counted within the run, so that a late backward cannot be taken for one of another call."""

    nth: int
    """Counted within the step for this module."""

    root: str
    module: str
    step: int
    args: Encoded
    kwargs: Encoded
    rng: RngState
    state: StateSnapshot
    grad_enabled: bool
    inference_mode: bool
    autocast: tuple[dict[str, Any], ...]
    outputs: list[OutputRecord] = field(default_factory=list)
    raised: bool = False


@dataclass(slots=True)
class BackwardRecord:
    """The gradients of one backward where they entered the outputs of calls."""

    number: int
    after_call: int
    create_graph: bool
    gradients: list[tuple[int, str, torch.Tensor, int]] = field(default_factory=list)
    """(call index, leaf, gradient, its version when it arrived)."""


@dataclass(slots=True)
class SegmentRecord:
    """The calls and backwards since the weights last changed; may span several steps."""

    first_step: int
    calls: list[CallRecord] = field(default_factory=list)
    backwards: list[BackwardRecord] = field(default_factory=list)
    loss: tuple[torch.Tensor, int] | None = None
    """(value, calls finished when it was given)."""

    grads_present: bool = False
    """Was any `.grad` not None when the first backward began?"""

    gradient_bytes: int = 0
    unavailable: str | None = None
    """Why gradients cannot be replayed from the calls alone."""

    updated: bool = False
    """Have the weights changed since?"""


@dataclass(slots=True)
class StepEntry:
    """One step of the ring: its numbers, its inputs and its calls."""

    step: int
    copies: TensorTable
    rng: RngState
    batch: Encoded | None = None
    calls: list[CallRecord] = field(default_factory=list)
    record: StepRecord = field(default_factory=lambda: StepRecord(step=-1))
    state_bytes: int = 0
    """Bytes of random states, and of buffers and attributes before its calls."""

    bad: bool = False
    """Did a detector object to it? Such a step is no control."""

    @property
    def nbytes(self) -> int:
        """Bytes of the copies this step holds."""
        return self.copies.nbytes + self.state_bytes


class Ring:
    """The last steps, bounded in number and in bytes; the oldest goes first."""

    def __init__(self, *, steps: int, max_bytes: int) -> None:
        """Keep at most `steps` steps and `max_bytes` bytes; ask `reserve` before a push."""
        self._entries: deque[StepEntry] = deque()
        self._history: deque[StepRecord] = deque(maxlen=HISTORY)
        self._steps = steps
        self._max_bytes = max_bytes
        self.nbytes = 0
        """Bytes of the copies held now, counted exactly."""

    def reserve(self, nbytes: int) -> int:
        """Forget the oldest steps until `nbytes` more would fit; return how many had to go."""
        dropped = 0
        while self._entries and self.nbytes + nbytes > self._max_bytes:
            self._forget()
            dropped += 1
        return dropped

    def push(self, entry: StepEntry) -> None:
        """Add the newest step, in place of the oldest where the ring is full."""
        self._entries.append(entry)
        self._history.append(entry.record)
        self.nbytes += entry.nbytes
        while len(self._entries) > self._steps:
            self._forget()

    def _forget(self) -> None:
        self.nbytes -= self._entries.popleft().nbytes

    def __iter__(self) -> Iterator[StepEntry]:
        """Iterate from the oldest to the newest."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of steps whose inputs are kept."""
        return len(self._entries)

    @property
    def history(self) -> tuple[StepRecord, ...]:
        """Numbers of the last steps, oldest first; longer than the ring, since they are small."""
        return tuple(self._history)


HISTORY = 128
"""Steps whose numbers are kept for the detectors and the incident."""
