"""Run a recorded segment again, forward and backward, without the user's loss code."""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

from flightrec.rng import Generators
from replay.pristine import Pristine
from replay.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from torch import nn

    from replay.episode import Arguments, Episode, RecordedCall
    from replay.raised import Raised

Edit: TypeAlias = "Callable[[RecordedCall | None, tuple[Any, ...], dict[str, Any]], Arguments]"
"""Takes a call and its fresh arguments, returns those to use; with a `step_fn` the call is
None and the only argument is the batch."""


class Observer(Protocol):
    """Watches a re-execution; entered once around all of it, the engine's own work excluded.

    Between `call_begin` and `call_end` code of the forward runs, between `backward_begin` and
    `backward_end` code of the backward; with a `step_fn` what runs outside both is the loss.
    """

    def __enter__(self) -> object:
        """Start watching."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None:
        """Stop watching."""

    def call_begin(self, call: RecordedCall, module: nn.Module) -> None:
        """The next operators belong to this call; state and arguments are in place."""

    def call_end(self, call: RecordedCall, output: object) -> None:
        """The call returned `output`, None where it raised."""

    def backward_begin(self, number: int) -> None:
        """The next operators belong to the backward of this number."""

    def backward_end(self, number: int) -> None:
        """That backward has ended, by return or by exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one re-execution gave; tensors live on the device of the models."""

    outputs: tuple[tuple[tuple[str, torch.Tensor], ...], ...]
    """Leaf and detached tensor of each output, for each call that was run, in order."""

    whole: bool = False
    """Did a `step_fn` run the whole step, loss code included?"""

    loss: torch.Tensor | None = None
    """What `step_fn` returned, detached; None without one."""

    gradients: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """`root:name` to the gradient held at the end; parameters without one are left out."""

    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """`root:name` to a copy of each floating buffer as the last call left it."""

    exception: Raised | None = None
    changed: frozenset[tuple[int, str]] = frozenset()
    """Outputs (position of the call, leaf) that were changed in place after their call."""

    written: tuple[str, ...] = ()
    """Parameters that the forward itself wrote."""

    notes: tuple[str, ...] = ()
    seconds: float = 0.0


class Engine:
    """Re-executes episodes over models; every run starts from the same state.

    Models, random state and flags are restored after each run. A run without observer costs
    one plain step, one copy of the buffers and one reading of the parameters.
    """

    one_autocast: bool = True
    """Share casts of weights between neighbouring calls, as one autocast block does.

    Which of both was recorded decides how gradients of half precision are summed.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        device: torch.device | str = "cpu",
        step_fn: Callable[..., torch.Tensor] | None = None,
        *,
        refresh: Callable[[str], torch.Tensor] | None = None,
    ) -> None:
        """Take models that hold the recorded weights; `refresh("root:name")` gives one back."""
        self.models = dict(models)
        self.device = torch.device(device)
        self.step_fn = step_fn
        self.modules: dict[str, nn.Module] = {
            f"{root}:{name}": module
            for root, model in self.models.items()
            for name, module in model.named_modules(remove_duplicate=False)
        }
        self.names: dict[int, str] = {}
        keys: dict[int, tuple[nn.Module, set[str]]] = {}
        for key, module in self.modules.items():
            self.names.setdefault(id(module), key)
            keys.setdefault(id(module), (module, set()))[1].add(key)
        self.flags = [(module, frozenset(names)) for module, names in keys.values()]
        self.generators = Generators(self.models)
        self.pristine = Pristine(self.models, refresh)

    def run(
        self,
        episode: Episode,
        observer: Observer | None = None,
        backward: bool = True,  # noqa: FBT001, FBT002  (fixed by the contract with bisect)
        edit: Edit | None = None,
    ) -> Trace:
        """Re-execute `episode` and return what came of it.

        Exceptions of the re-executed code end up in the trace. `backward=False` stops after
        the last call; `edit` may exchange arguments before each call.
        """
        started = time.perf_counter()
        run = Rerun(self, episode, observer, edit)
        whole = self.step_fn is not None and episode.batch is not None
        before = self.generators.read()
        try:
            with ExitStack() as stack:
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                stack.enter_context(torch.inference_mode(mode=False))
                stack.enter_context(torch.enable_grad())
                if observer is not None:
                    stack.enter_context(observer)
                (run.step_fn if whole else run.segment)(backward=backward)
            found = run.result()
        finally:
            written = self.pristine.restore()
            self.generators.restore(before)
        seconds = time.perf_counter() - started
        return Trace(whole=whole, written=tuple(written), seconds=seconds, **found)
