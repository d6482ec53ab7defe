"""Experiments on single operators: run one alone on its recorded inputs, or make it finite."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from replay.schema import behaviour, split, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from replay.episode import RecordedCall


@dataclass(slots=True)
class Kept:
    """One operator with its inputs, and what it made of them in the step."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: dict[str, torch.Tensor]
    """State of the default generators, by device, before it ran."""

    outputs: list[torch.Tensor] = field(default_factory=list)
    error: str = ""

    def alone(self, prepare: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Alone:
        """Run the operator again on copies of its inputs, each `prepare`d first."""
        args = _mapped(self.args, prepare or torch.Tensor.clone)
        kwargs = _mapped(self.kwargs, prepare or torch.Tensor.clone)
        before = random_state()
        try:
            restore_random(self.random)
            with torch.no_grad():
                result = self.func(*args, **kwargs)
        except Exception as fault:
            return Alone([], f"{type(fault).__name__}: {fault}")
        finally:
            restore_random(before)
        return Alone(_made(self.func, args, kwargs, result), "")


@dataclass(frozen=True, slots=True)
class Alone:
    """What an operator made when it ran alone."""

    outputs: list[torch.Tensor]
    error: str


class _Counter(TorchDispatchMode):
    """Counts operators as a scan does, and hands the wanted ones over."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._tap = tap
        self._index = -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._index += 1
        name = self._tap.wanted.get(self._index)
        if name is None:
            return func(*args, **kwargs)
        if name != str(func):
            self._tap.strayed = True
            return func(*args, **kwargs)
        return self._tap.run(self._index, func, args, kwargs)


class Tap:
    """An observer that steps in at some operators of a run, told by their index in a scan."""

    def __init__(self, wanted: Mapping[int, str]) -> None:
        """Step in at these operators, given with their names."""
        self.wanted = wanted
        self.strayed = False
        """Was another operator found at one of the indices? Then nothing can be said."""

        self._open = ExitStack()

    def __enter__(self) -> Tap:
        """Start to count."""
        self._open.enter_context(_Counter(self))
        return self

    def __exit__(self, *_: object) -> None:
        """Stop to count."""
        self._open.close()

    def call_begin(self, call: RecordedCall, module: nn.Module) -> None:
        """Nothing to do when a call begins."""

    def call_end(self, call: RecordedCall, output: object) -> None:
        """Nothing to do when a call ends."""

    def backward_begin(self, number: int) -> None:
        """Nothing to do when a backward pass begins."""

    def backward_end(self, number: int) -> None:
        """Nothing to do when a backward pass ends."""

    def run(self, index: int, func: Any, args: Any, kwargs: Any) -> Any:
        """Run the operator; subclasses do what they are for around it."""
        raise NotImplementedError


class Heal(Tap):
    """Replaces bad values in what the wanted operators make, in place, as they make it."""

    def __init__(
        self, wanted: Mapping[int, str], mend: Callable[[torch.Tensor], None] | None = None
    ) -> None:
        """Mend the outputs of these, or leave them as they are."""
        super().__init__(wanted)
        self._mend = mend
        self.mended = 0

    def run(self, index: int, func: Any, args: Any, kwargs: Any) -> Any:
        """Run, then mend."""
        result = func(*args, **kwargs)
        self.made(index, _made(func, args, kwargs, result))
        return result

    def made(self, index: int, outputs: Sequence[torch.Tensor]) -> None:  # noqa: ARG002  (for Keep)
        """Mend what the operator of this index made."""
        if self._mend is None:
            return
        for tensor in outputs:
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                self._mend(tensor)
                self.mended += 1


class Keep(Heal):
    """Keeps copies of inputs and outputs of the wanted operators in `kept`, before it mends."""

    def __init__(
        self, wanted: Mapping[int, str], mend: Callable[[torch.Tensor], None] | None = None
    ) -> None:
        """Keep these."""
        super().__init__(wanted, mend)
        self.kept: dict[int, Kept] = {}

    def run(self, index: int, func: Any, args: Any, kwargs: Any) -> Any:
        """Copy, run, copy, mend."""
        kept = self.kept[index] = Kept(
            func,
            _mapped(args, torch.Tensor.clone),
            _mapped(kwargs, torch.Tensor.clone),
            random_state(),
        )
        try:
            return super().run(index, func, args, kwargs)
        except Exception as fault:
            kept.error = f"{type(fault).__name__}: {fault}"
            raise

    def made(self, index: int, outputs: Sequence[torch.Tensor]) -> None:
        """Copy what was made, then mend it."""
        self.kept[index].outputs = [tensor.detach().clone() for tensor in outputs]
        super().made(index, outputs)


def _made(func: Any, args: Any, kwargs: Any, result: Any) -> list[torch.Tensor]:
    """Return what an operator changed and returned, each tensor once."""
    _, changed = split(behaviour(func), args, kwargs)
    return list({id(tensor): tensor for tensor in (*changed, *tensors_in(result))}.values())


def random_state() -> dict[str, torch.Tensor]:
    """Return the state of torch's default generators, by device."""
    found = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's
        for number in range(torch.cuda.device_count()):
            found[f"cuda:{number}"] = torch.cuda.get_rng_state(number)
    return found


def restore_random(states: Mapping[str, torch.Tensor]) -> None:
    """Put the default generators back into these states."""
    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Copy nested arguments, applying `change` to the tensors in them."""
    if isinstance(value, torch.Tensor):
        return change(value.detach())
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    return value


class MendState:
    """An observer that replaces bad parameters, buffers or attributes while a run goes on."""

    def __init__(
        self, tensors: Callable[[], Sequence[torch.Tensor]], mend: Callable[[torch.Tensor], None]
    ) -> None:
        """Mend what `tensors()` returns, which may be other objects after each call begins."""
        self._tensors = tensors
        self._mend = mend
        self._saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __enter__(self) -> MendState:
        """Mend what is there."""
        self._apply()
        return self

    def __exit__(self, *_: object) -> None:
        """Put the bad values back."""
        for tensor, copy in self._saved.values():
            tensor.data.copy_(copy)

    def call_begin(self, call: RecordedCall, module: nn.Module) -> None:  # noqa: ARG002  (protocol)
        """Mend the recorded state of a call, too."""
        self._apply()

    def call_end(self, call: RecordedCall, output: object) -> None:
        """Nothing to do when a call ends."""

    def backward_begin(self, number: int) -> None:
        """Nothing to do when a backward pass begins."""

    def backward_end(self, number: int) -> None:
        """Nothing to do when a backward pass ends."""

    def _apply(self) -> None:
        for tensor in self._tensors():
            if id(tensor) not in self._saved:
                self._saved[id(tensor)] = (tensor, tensor.detach().clone())
            self._mend(tensor.data)
