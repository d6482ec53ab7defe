"""Every random generator a step may draw from: found once, read cheaply, restored to the bit."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flightrec.errors import CodeMissingError, CorruptIncidentError, FlightrecError
from flightrec.rng.sources import (
    KINDS,
    NUMPY,
    STATE_BYTES,
    devices,
    fits,
    kind_of,
    set_numpy,
    spots,
)
from flightrec.tree import Decoder, Encoder
from flightrec.tree.generators import (
    python_state,
    python_state_node,
    torch_state_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from flightrec.tree import TensorTable
    from flightrec.types import Json

_PYTHON_BYTES = STATE_BYTES * 10
"""About what a tuple of 625 Python integers takes."""


@dataclass(frozen=True, slots=True)
class RngState:
    """State of all generators at one moment; opaque, made by `Generators.read`."""

    python: tuple[Any, ...]
    numpy: Mapping[str, Any]
    cpu: torch.Tensor
    devices: tuple[tuple[str, torch.Tensor], ...]
    objects: tuple[tuple[tuple[str, ...], str, Any], ...]
    """Names under which each generator object was found, its kind, its state."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory it takes, to within a few hundred."""
        count = 2 + len(self.objects)
        devices = sum(state.nbytes for _, state in self.devices)
        return count * _PYTHON_BYTES + self.cpu.nbytes + devices


class Generators:
    """The generators of this process, and those that hang on the modules of `roots`.

    Python's `random`, NumPy's global generator, torch's on the CPU and on each device in use are
    always there. `torch.Generator`, `numpy.random.Generator`, `RandomState` and `random.Random`
    objects are looked for in the attributes of every module, and in lists, tuples and
    dictionaries there; one that hangs in two places is one generator. Reading draws nothing.
    """

    def __init__(self, roots: Mapping[str, torch.nn.Module]) -> None:
        """Look for generators; names are `root:module.attribute`."""
        self._spots = [
            spot
            for root, module in roots.items()
            for path, part in module.named_modules()
            for spot in spots(f"{root}:{path}.".replace(":.", ":"), part)
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """Where generator objects were found, `root:module.attribute`."""
        return tuple(spot.name for spot in self._spots)

    def read(self) -> RngState:
        """Return the state of all; costs about 15 us, and waits for no device."""
        return RngState(
            random.getstate(),
            NUMPY.read(),
            torch.default_generator.get_state(),
            tuple((name, state()) for name, state, _ in devices()),
            self._read_objects() if self._spots else (),
        )

    def _read_objects(self) -> tuple[tuple[tuple[str, ...], str, Any], ...]:
        found: dict[int, tuple[list[str], str, Any]] = {}
        for spot in self._spots:
            value = spot.value()
            kind = kind_of(value)
            if kind is None:
                continue
            if id(value) in found:
                found[id(value)][0].append(spot.name)
            else:
                found[id(value)] = ([spot.name], kind, KINDS[kind][1](value))
        return tuple((tuple(names), kind, state) for names, kind, state in found.values())

    def encode(self, state: RngState, table: TensorTable) -> Json:
        """Return a state as JSON; the words go into `table` as tensors of the role `rng`."""
        encoder = Encoder(table, role="rng")
        return {
            "python": python_state_node(encoder, state.python, "python"),
            "numpy": encoder.encode(dict(state.numpy), "numpy"),
            "torch": torch_state_node(encoder, state.cpu, "torch"),
            "devices": [
                [name, torch_state_node(encoder, words, name)] for name, words in state.devices
            ],
            "objects": [
                {
                    "names": list(names),
                    "kind": kind,
                    "state": _object_node(encoder, kind, words, names[0]),
                }
                for names, kind, words in state.objects
            ],
        }

    @staticmethod
    def decode(node: Any, tensors: Callable[[int], torch.Tensor]) -> RngState:
        """Read what `encode` wrote; raises `CorruptIncidentError` where a part is malformed."""
        try:
            return _read(Decoder(tensors, _Nobody()), node)
        except (LookupError, TypeError, ValueError, AttributeError) as fault:
            if isinstance(fault, FlightrecError):
                raise
            raise CorruptIncidentError(f"bad random state: {fault!r}") from fault

    def restore(self, state: RngState) -> None:
        """Set every generator of the state that is also here; see `unmatched` for the others.

        Raises `CorruptIncidentError` where a generator refuses its state.
        """
        try:
            self._restore(state)
        except (RuntimeError, LookupError, TypeError, ValueError) as fault:
            raise CorruptIncidentError(f"a generator refused its state: {fault}") from fault

    def _restore(self, state: RngState) -> None:
        random.setstate(state.python)
        set_numpy(state.numpy)
        torch.default_generator.set_state(state.cpu)
        setters = {name: setter for name, _, setter in devices(all_devices=bool(state.devices))}
        for name, words in state.devices:
            if name in setters:
                setters[name](words)
        here = {spot.name: spot.value() for spot in self._spots}
        for names, kind, words in state.objects:
            value = next((here[name] for name in names if name in here), None)
            if fits(kind, value, words):
                KINDS[kind][2](value, words)

    def unmatched(self, state: RngState) -> tuple[str, ...]:
        """Return the devices and generator objects of a state that do not exist here."""
        here = {name for name, _, _ in devices(all_devices=bool(state.devices))}
        spots = {spot.name: spot.value() for spot in self._spots}
        gone = [name for name, _ in state.devices if name not in here]
        for names, kind, words in state.objects:
            if not any(fits(kind, spots.get(name), words) for name in names):
                gone.append(names[0])
        return tuple(gone)


class _Nobody:
    """Resolver for states, which name no code."""

    def resolve_class(self, module: str, qualname: str) -> NoReturn:
        raise CodeMissingError(f"a random state names a class: {module}:{qualname}")

    def resolve_function(self, module: str, qualname: str) -> NoReturn:
        raise CodeMissingError(f"a random state names a function: {module}:{qualname}")


def _read(decoder: Decoder, node: Any) -> RngState:
    return RngState(
        python_state(decoder, node["python"]),
        decoder.decode(node["numpy"]),
        decoder.tensor(node["torch"]).cpu(),
        tuple((name, decoder.tensor(words).cpu()) for name, words in node["devices"]),
        tuple(
            (tuple(entry["names"]), entry["kind"], _object_state(decoder, entry))
            for entry in node["objects"]
        ),
    )


def _object_node(encoder: Encoder, kind: str, state: Any, name: str) -> Any:
    if kind == "torch":
        return torch_state_node(encoder, state, name)
    if kind == "random":
        return python_state_node(encoder, state, name)
    return encoder.encode(state, name)


def _object_state(decoder: Decoder, entry: Any) -> Any:
    if entry["kind"] == "torch":
        return decoder.tensor(entry["state"]).cpu()
    if entry["kind"] == "random":
        return python_state(decoder, entry["state"])
    return decoder.decode(entry["state"])
