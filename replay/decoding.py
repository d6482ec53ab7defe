"""Segments of a manifest as episodes: nodes become arguments, indices become tensors."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from flightrec.rng import Generators
from flightrec.tree import Decoder, TensorLoader
from replay.episode import (
    Episode,
    RecordedBackward,
    RecordedCall,
    RecordedGradient,
    RecordedOutput,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from flightrec.incident.reader import Incident
    from flightrec.tree import Resolver
    from flightrec.types import TensorRef
    from replay.episode import Arguments

CACHE_BYTES = 256 * 1024 * 1024
"""Bytes of inputs that are kept unpacked, since each run decodes its arguments anew."""


class Tensors:
    """Tensors of one incident, on the device of the replay or, where they have to be, the CPU."""

    def __init__(self, incident: Incident, device: torch.device) -> None:
        """Read from `incident`; nothing is read before it is asked for."""
        self.refs = incident.tensors
        self.device = device
        self._read = incident.storage
        self._cache: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()
        self._cached = 0
        self.accelerated = any(ref.device not in ("cpu", "meta") for ref in self.refs)
        """Was anything on an accelerator when it was recorded?"""

        self._at_home = [_stays(ref, device, accelerated=self.accelerated) for ref in self.refs]

    def loader(self) -> Callable[[int], torch.Tensor]:
        """Return a function from index to tensor with copies of its own; see `TensorLoader`."""
        home = TensorLoader(self.refs, self._bytes)
        away = TensorLoader(self.refs, self._bytes, self.device)

        def load(index: int) -> torch.Tensor:
            stays = 0 <= index < len(self._at_home) and self._at_home[index]
            return home(index) if stays else away(index)

        return load

    def place(self, recorded: str) -> torch.device:
        """Return where that is now which was on the device of this name."""
        was = torch.device(recorded)
        if was.type == "meta" or (was.type == "cpu" and self.accelerated):
            return was
        return self.device

    def on_cpu(self, index: int) -> torch.Tensor:
        """Return one fresh tensor on the CPU, without gradient."""
        return TensorLoader(self.refs, self._bytes)(index).detach()

    def fresh(self, index: int) -> torch.Tensor:
        """Return one fresh tensor on the device of the replay, without gradient."""
        return self.loader()(index).detach()

    def _bytes(self, number: int) -> NDArray[np.uint8]:
        """Read a storage, through a cache of bounded size; what is returned gets copied."""
        data = self._cache.get(number)
        if data is None:
            data = self._read(number)
            if data.nbytes > CACHE_BYTES // 8:
                return data
            self._cache[number] = data
            self._cached += data.nbytes
            while self._cached > CACHE_BYTES:
                self._cached -= self._cache.popitem(last=False)[1].nbytes
        self._cache.move_to_end(number)
        return data


def _stays(ref: TensorRef, device: torch.device, *, accelerated: bool) -> bool:
    """Must this tensor be on the CPU, whatever device the models are on?

    Where the run had an accelerator, what was on the CPU was there on purpose. Where it had
    none, random states and lengths of packed sequences are what torch insists on.
    """
    if device.type == "cpu" or ref.role == "rng":
        return True
    return ref.device == "cpu" if accelerated else ref.name.endswith("batch_sizes")


class _Placing(Decoder):
    """Decodes values with devices as they are in the replay."""

    readers: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {
        **Decoder.readers,
        "device": lambda decoder, node: decoder.place(node["v"]),
    }
    place: Callable[[str], torch.device]


class SegmentDecoder:
    """Makes episodes of the segments of one incident, over the models that were rebuilt."""

    def __init__(
        self, tensors: Tensors, resolver: Resolver, models: Mapping[str, nn.Module]
    ) -> None:
        """Resolve names by `resolver`, and references to modules and parameters in `models`."""
        self._tensors = tensors
        self._resolver = resolver
        self._modules = {
            f"{root}:{name}": module
            for root, model in models.items()
            for name, module in model.named_modules(remove_duplicate=False)
        }
        self._state = tensors.loader()

    def value(self, node: Any) -> Any:
        """Decode one value, with tensors of its own."""
        return self._decoder(self._tensors.loader()).decode(node)

    def episode(
        self, segment: Mapping[str, Any], *, optimizers: tuple[Mapping[str, Any], ...] = ()
    ) -> Episode:
        """Decode a segment; arguments and values are decoded when they are asked for."""
        loss, batch = segment["loss"], segment["batch"]
        return Episode(
            step=segment["step"],
            first_step=segment["first_step"],
            calls=tuple(self._call(call) for call in segment["calls"]),
            backwards=tuple(self._backward(entry) for entry in segment["backwards"]),
            rng=self._rng(segment["rng"]),
            batch=None if batch is None else lambda: self.value(batch),
            loss=None if loss is None else self._tensors.on_cpu(loss["tensor"]),
            loss_after_call=None if loss is None else loss["after_call"],
            gradients=tuple(
                RecordedGradient(
                    parameter=entry["parameter"],
                    hash=entry["hash"],
                    value=self._value_of(entry["tensor"]),
                )
                for entry in segment["gradients"]
            ),
            gradients_unavailable=segment["gradients_unavailable"],
            grads_present=segment["grads_present"],
            exception=segment["exception"],
            optimizers=optimizers,
        )

    def _call(self, call: Mapping[str, Any]) -> RecordedCall:
        state = call["state"]
        decoder = self._decoder(self._state)
        return RecordedCall(
            index=call["index"],
            root=call["root"],
            module=call["module"],
            step=call["step"],
            fresh=lambda: self._arguments(call),
            rng=self._rng(call["rng"]),
            buffers=lambda: {key: self._state(i) for key, i in state["buffers"].items()},
            attributes={
                key: {name: decoder.decode(node) for name, node in attributes.items()}
                for key, attributes in state["attributes"].items()
            },
            training=frozenset(call["training"]),
            grad_enabled=call["grad_enabled"],
            inference_mode=call["inference_mode"],
            autocast=tuple(self._autocast(entry) for entry in call["autocast"]),
            outputs=tuple(
                RecordedOutput(
                    leaf=entry["leaf"],
                    dtype=entry["dtype"],
                    shape=tuple(entry["shape"]),
                    hash=entry["hash"],
                    value=self._value_of(entry["tensor"]),
                    changed=entry["changed"],
                    requires_grad=entry["requires_grad"],
                )
                for entry in call["outputs"]
            ),
            raised=call["raised"],
        )

    def _arguments(self, call: Mapping[str, Any]) -> Arguments:
        """Decode positional and keyword arguments; one tensor in both is one object."""
        loader = self._tensors.loader()
        first, second = self._decoder(loader), self._decoder(loader)
        second.tensors = first.tensors
        return tuple(first.decode(call["args"])), dict(second.decode(call["kwargs"]))

    def _backward(self, entry: Mapping[str, Any]) -> RecordedBackward:
        def gradients() -> list[tuple[int, str, torch.Tensor]]:
            loader = self._tensors.loader()
            return [
                (each["call"], each["leaf"], loader(each["tensor"]).detach())
                for each in entry["gradients"]
            ]

        return RecordedBackward(
            number=entry["number"],
            after_call=entry["after_call"],
            gradients=gradients,
            create_graph=entry["create_graph"],
        )

    def _autocast(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Move autocast from the recorded device type to the one of the replay."""
        if entry["device"] == "cpu" and self._tensors.accelerated:
            return entry
        return {**entry, "device": self._tensors.device.type}

    def _rng(self, node: Any) -> Any:
        return None if node is None else Generators.decode(node, self._tensors.on_cpu)

    def _value_of(self, index: int | None) -> Callable[[], torch.Tensor] | None:
        return None if index is None else lambda: self._tensors.on_cpu(index)

    def _decoder(self, loader: Callable[[int], torch.Tensor]) -> Decoder:
        made = _Placing(loader, self._resolver, self._modules)
        made.place = self._tensors.place
        return made
