"""Where generators are: the process's own, those of devices, and those that hang on modules."""

from __future__ import annotations

import ctypes
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flightrec.tree.generators import BIT_GENERATORS
from flightrec.tree.naming import mro

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_random: Any = np.random  # whose stubs leave out the global bit generator

_WORDS = 624
STATE_BYTES = (_WORDS + 1) * 4
"""Size of NumPy's `mt19937_state`: 624 words of 32 bits and a position."""


class NumpyReader:
    """Reads NumPy's global generator; 0.5 us instead of 35 us while nobody draws from it.

    `get_state` builds its array word by word. The raw struct behind the bit generator (whose
    address is public) says whether a word or the position has changed since the last full
    reading. A spare Gaussian is outside the struct, so with one waiting it reads in full; so it
    does where the struct is not laid out as expected, which every full reading checks.
    """

    def __init__(self) -> None:
        self._bits: Any = None
        self._address = 0
        self._raw = b""
        self._state: Mapping[str, Any] = {}

    def forget(self) -> None:
        """Read in full next time: the state was set, maybe with a spare Gaussian."""
        self._bits = None

    def read(self) -> Mapping[str, Any]:
        """Return what `numpy.random.get_state(legacy=False)` would."""
        bits = _random.get_bit_generator()
        if bits is self._bits and ctypes.string_at(self._address, STATE_BYTES) == self._raw:
            return self._state
        state: Mapping[str, Any] = np.random.get_state(legacy=False)
        self._bits = None
        if type(bits) is np.random.MT19937 and not state["has_gauss"]:
            address = bits.ctypes.state_address
            raw = ctypes.string_at(address, STATE_BYTES)
            words = state["state"]
            if raw == words["key"].tobytes() + np.int32(words["pos"]).tobytes():
                self._bits, self._address, self._raw = bits, address, raw
                self._state = state
        return state


NUMPY = NumpyReader()
"""The one reader of this process, so that whoever sets the state can make it read again."""


def set_numpy(state: Mapping[str, Any]) -> None:
    """Set NumPy's global generator, changing its kind where the state is of another one."""
    NUMPY.forget()
    name = state["bit_generator"]
    if type(_random.get_bit_generator()).__name__ != name:
        _random.set_bit_generator(BIT_GENERATORS[name](0))
    np.random.set_state(dict(state))


def devices(
    *, all_devices: bool = False
) -> Iterator[tuple[str, Callable[[], torch.Tensor], Callable[[torch.Tensor], object]]]:
    """Yield (name, reader, setter) of the generators of devices in use, or of all there are."""
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind)
        if module.is_initialized():
            if kind == "cuda" and torch.cuda.is_current_stream_capturing():
                continue
            for i, generator in enumerate(module.default_generators):
                yield f"{kind}:{i}", generator.get_state, generator.set_state
        elif all_devices:
            for i in range(module.device_count()):
                yield (
                    f"{kind}:{i}",
                    partial(module.get_rng_state, i),
                    partial(_set_device, module, i),
                )
    if _MPS:
        yield "mps:0", torch.mps.get_rng_state, torch.mps.set_rng_state


def _set_device(module: Any, index: int, words: torch.Tensor) -> None:
    module.set_rng_state(words, index)


_MPS = torch.backends.mps.is_available()


def _set_bits(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


def fits(kind: str, value: Any, state: Any) -> bool:
    """Is a generator of this kind, and of the sort that can take this state?"""
    if kind_of(value) != kind:
        return False
    if kind == "torch":
        return bool(value.get_state().numel() == state.numel())
    if kind == "random":
        return True
    bits = value.bit_generator if kind == "numpy" else value._bit_generator
    return bool(type(bits).__name__ == state["bit_generator"])


KINDS: Mapping[str, tuple[type, Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    "torch": (
        torch.Generator,
        lambda generator: generator.get_state(),
        lambda generator, state: generator.set_state(state),
    ),
    "numpy": (np.random.Generator, lambda generator: generator.bit_generator.state, _set_bits),
    "legacy": (
        np.random.RandomState,
        lambda generator: generator.get_state(legacy=False),
        lambda generator, state: generator.set_state(state),
    ),
    "random": (
        random.Random,
        lambda generator: random.Random.getstate(generator),
        lambda generator, state: random.Random.setstate(generator, state),
    ),
}
"""Kinds of generator objects: type, how the state is read, how it is set."""


def kind_of(value: Any) -> str | None:
    """Return the key in `KINDS` of a generator object, or None for anything else."""
    chain = mro(type(value))  # not isinstance, which asks the object for its class
    if value is torch.default_generator or random.SystemRandom in chain:
        return None
    return next((kind for kind, (base, _, _) in KINDS.items() if base in chain), None)


class Spot:
    """A place on a module where a generator was seen; reads what is there now."""

    __slots__ = ("_attribute", "_held", "_inner", "name")

    def __init__(self, name: str, held: dict[str, Any], attribute: str, inner: Any = None) -> None:
        self.name = name
        self._held = held
        self._attribute = attribute
        self._inner = inner

    def value(self) -> Any:
        """Return what is there now, None if nothing is."""
        found: Any = self._held.get(self._attribute)
        if self._inner is None:
            return found
        try:
            return found[self._inner]
        except (LookupError, TypeError):  # the container was changed since
            return None


def spots(prefix: str, module: torch.nn.Module) -> Iterator[Spot]:
    """Yield the places of a module where a generator hangs, one container deep."""
    held = vars(module)
    for attribute, value in held.items():
        if attribute.startswith("_") and attribute in _OF_MODULES:
            continue
        if kind_of(value) is not None:
            yield Spot(f"{prefix}{attribute}", held, attribute)
        elif type(value) in (list, tuple, dict):
            pairs = value.items() if type(value) is dict else enumerate(value)
            for inner, item in pairs:
                if kind_of(item) is not None:
                    yield Spot(f"{prefix}{attribute}[{inner!r}]", held, attribute, inner)


_OF_MODULES = frozenset(vars(torch.nn.Module()))
