"""One re-execution: put each call's state in place, run it, feed recorded gradients back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from flightrec.tree import leaves
from replay.entries import Entries
from replay.episode import RecordedCall
from replay.raised import describe
from replay.reinstate import Reinstate, unobserved, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from replay.engine import Edit, Engine, Observer
    from replay.episode import Episode, RecordedBackward
    from replay.raised import Raised


class Rerun:
    """State of one run; `result()` hands over what a `Trace` is made of."""

    def __init__(
        self, engine: Engine, episode: Episode, observer: Observer | None, edit: Edit | None
    ) -> None:
        """Prepare to run `episode` over the models of `engine`."""
        self._engine = engine
        self._episode = episode
        self._observer = observer
        self._edit = edit
        self._outputs: list[tuple[tuple[str, torch.Tensor], ...]] = []
        self._versions: list[tuple[int, str, torch.Tensor, int]] = []
        self._live: dict[int, dict[str, torch.Tensor]] = {}
        self._state = Reinstate(engine, episode)
        self._uses: dict[int, set[int]] = {}
        self._notes: list[str] = []
        self._exception: Raised | None = None
        self._loss: torch.Tensor | None = None

    def segment(self, *, backward: bool) -> None:
        """Run every call, and the recorded backward passes between them."""
        due: dict[int, list[RecordedBackward]] = {}
        for recorded in self._episode.backwards if backward else ():
            due.setdefault(recorded.after_call, []).append(recorded)
        self._state.zero_gradients()
        try:
            for position, call in enumerate(self._episode.calls):
                if not self._backwards(due.get(position, ())) or not self._call(position, call):
                    return
            self._backwards(due.get(len(self._episode.calls), ()))
        finally:
            self._state.leave_autocast()

    def step_fn(self, *, backward: bool) -> None:
        """Run the user's `step_fn` on the recorded batch, then the backward of its loss."""
        engine, episode = self._engine, self._episode
        assert engine.step_fn is not None
        assert episode.batch is not None
        with unobserved():
            self._state.zero_gradients()
            if episode.calls:
                self._state.before(episode.calls[0])
            self._state.generators(episode.rng)
            batch = episode.batch()
            if self._edit is not None:
                (batch,), _ = self._edit(None, (batch,), {})
        model = engine.models[""] if list(engine.models) == [""] else engine.models
        try:
            with torch.enable_grad(), Entries(self, engine.names):
                loss = engine.step_fn(model, batch)
            self._loss = loss.detach()
        except Exception as fault:
            self._exception = describe(fault, engine.names, phase="loss")
            return
        if backward and loss.requires_grad:
            self._protected_backward(0, (loss,), (None,), retain=False, create=False)

    def result(self) -> dict[str, Any]:
        """Return the fields of a `Trace`; call before the models are restored."""
        engine = self._engine
        gradients = {
            f"{root}:{name}": parameter.grad
            for root, model in engine.models.items()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        buffers = {
            f"{root}:{name}": buffer.detach().clone()
            for root, model in engine.models.items()
            for name, buffer in model.named_buffers()
            if buffer.is_floating_point() or buffer.is_complex()
        }
        changed = {
            (position, leaf)
            for position, leaf, tensor, version in self._versions
            if version_of(tensor) != version
        }
        return {
            "outputs": tuple(self._outputs),
            "loss": self._loss,
            "gradients": gradients,
            "buffers": buffers,
            "exception": self._exception,
            "changed": frozenset(changed),
            "notes": tuple(self._notes),
        }

    # -- one call ---------------------------------------------------------------------------

    def _call(self, position: int, call: RecordedCall) -> bool:
        """Run one call; tell whether the segment goes on after it."""
        module = self._engine.modules[f"{call.root}:{call.module}"]
        with unobserved():
            self._state.before(call)
            self._state.enter_autocast(call.autocast)
            args, kwargs = call.fresh()
            if self._edit is not None:
                args, kwargs = self._edit(call, args, kwargs)
            self._state.generators(call.rng)
        self.begin(call, module)
        output: object = None
        try:
            with (
                torch.inference_mode(call.inference_mode),
                torch.set_grad_enabled(call.grad_enabled),
            ):
                output = module(*args, **kwargs)
        except Exception as fault:
            names = self._engine.names
            self._exception = describe(fault, names, phase="forward", call=position)
        self.end(call, output)
        return self._exception is None or call.raised

    def begin(self, call: RecordedCall, module: nn.Module) -> None:
        """Tell the observer that a call starts."""
        if self._observer is not None:
            self._observer.call_begin(call, module)

    def end(self, call: RecordedCall, output: object) -> None:
        """Tell the observer that a call ended, and keep its outputs."""
        if self._observer is not None:
            self._observer.call_end(call, output)
        with unobserved():
            live = dict(leaves(output))
            position = len(self._outputs)
            self._live[call.index] = live
            self._outputs.append(tuple((leaf, tensor.detach()) for leaf, tensor in live.items()))
            self._versions.extend(
                (position, leaf, tensor, version_of(tensor)) for leaf, tensor in live.items()
            )

    def call_at(self, key: str) -> RecordedCall:
        """Return the recorded call that this entry into `key` repeats, or one made for it."""
        position = len(self._outputs)
        calls, modules = self._episode.calls, self._engine.modules
        if position < len(calls):
            call = calls[position]
            if modules.get(f"{call.root}:{call.module}") is modules[key]:
                return call
        root, _, name = key.partition(":")
        return RecordedCall(index=position, root=root, module=name, fresh=lambda: ((), {}))

    # -- backward ---------------------------------------------------------------------------

    def _backwards(self, due: Sequence[RecordedBackward]) -> bool:
        """Run the backward passes that are due; tell whether the segment goes on."""
        for recorded in due:
            self._state.leave_autocast()
            if not self._backward(recorded):
                return False
        return True

    def _backward(self, recorded: RecordedBackward) -> bool:
        """Feed one backward's gradients in, each standing for all that reached its output.

        An output can depend on another one (a decoder's on the latent beside it), whose
        recorded gradient already holds that part. So the gradient is put in place by a hook
        on the output, after autograd has summed up what arrives there.
        """
        tensors: list[torch.Tensor] = []
        gradients: list[torch.Tensor | None] = []
        handles = []
        with unobserved():
            for index, leaf, gradient in recorded.gradients():
                output = self._live.get(index, {}).get(leaf)
                if not _takes(output, gradient):
                    self._notes.append(f"no gradient can enter at output {leaf!r} of call {index}")
                    continue
                tensors.append(output)
                gradients.append(gradient)
                put = output.register_hook(lambda _, total=gradient: total)  # type: ignore[no-untyped-call]  # torch's
                handles.append(put)
        try:
            return not tensors or self._protected_backward(
                recorded.number,
                tuple(tensors),
                tuple(gradients),
                retain=self._needed_later(recorded),
                create=recorded.create_graph,
            )
        finally:
            for handle in handles:
                handle.remove()

    def _needed_later(self, recorded: RecordedBackward) -> bool:
        """Does a later backward go through the same calls?"""
        later = [other for other in self._episode.backwards if other.number > recorded.number]
        if later and not self._uses:
            for each in self._episode.backwards:
                self._uses[each.number] = {index for index, _, _ in each.gradients()}
        here = self._uses.get(recorded.number, set())
        return any(here & self._uses[other.number] for other in later)

    def _protected_backward(
        self,
        number: int,
        tensors: tuple[torch.Tensor, ...],
        gradients: tuple[torch.Tensor | None, ...],
        *,
        retain: bool,
        create: bool,
    ) -> bool:
        """Run one backward; an exception becomes part of the trace."""
        if self._observer is not None:
            self._observer.backward_begin(number)
        try:
            torch.autograd.backward(tensors, gradients, retain_graph=retain, create_graph=create)
        except Exception as fault:
            self._exception = describe(fault, self._engine.names, phase="backward")
        if self._observer is not None:
            self._observer.backward_end(number)
        return self._exception is None


def _takes(output: torch.Tensor | None, gradient: torch.Tensor) -> TypeGuard[torch.Tensor]:
    """Is there such an output, made by autograd and as the recorded gradient is?"""
    return (
        output is not None
        and output.requires_grad
        and output.shape == gradient.shape
        and output.dtype == gradient.dtype
    )
