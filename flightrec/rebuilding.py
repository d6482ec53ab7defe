"""Nodes back into modules: made without constructors, filled in, and made to fit together."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from flightrec.describing import FLAGS, HOOKS, STATE_HOOKS
from flightrec.errors import CannotRebuildError, CorruptIncidentError
from flightrec.tree.decoder import Decoder
from flightrec.tree.holes import Hole
from flightrec.tree.naming import mro
from flightrec.tree.nodes import Placeholder
from flightrec.tree.objects import read_state
from flightrec.tree.raw import DTYPES
from flightrec.wrappers import AutocastForward, PassThrough

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flightrec.tree import Tagged
    from flightrec.trust import Trust

_dict_of = vars(nn.Module)["__dict__"].__get__


class MissingModule(nn.Module):
    """Stands for a module whose class could not be made again; has its tensors and children."""

    placeholder: Any
    """A `Placeholder` that knows what is missing and why."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `CannotRebuildError` naming the module."""
        return self.placeholder(*args, **kwargs)


class ModuleDecoder(Decoder):
    """Decodes values with modules in them; `fill` makes all modules of a description."""

    readers: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {
        **Decoder.readers,
        "submodule": lambda decoder, node: decoder.module(node["i"]),
        "weakref": lambda decoder, node: decoder.read_weakref(node),
        "handle": lambda decoder, node: decoder.read_handle(node),
        "apply": lambda decoder, node: decoder.read_apply(node),
        "uninitialized": lambda decoder, node: decoder.read_uninitialized(node),
        "device": lambda decoder, node: decoder.place(node["v"]),
        "torch_generator": lambda decoder, node: decoder.read_generator(node),
    }

    def __init__(
        self,
        tensors: Callable[[int], torch.Tensor],
        trust: Trust,
        place: Callable[[str], torch.device] = torch.device,
    ) -> None:
        """Take tensors by index, code as far as `trust` allows, devices by recorded name."""
        super().__init__(tensors, trust)
        self.place = place
        self._trust = trust
        self._modules: list[nn.Module] = []

    def fill(self, entries: list[Tagged]) -> None:
        """Make an instance for each entry, then fill all of them in, in the order of writing."""
        kinds = [self._class(entry) for entry in entries]
        self._modules = [_bare(kind) for kind in kinds]
        for module, entry in zip(self._modules, entries, strict=True):
            self._fill(module, entry)
        for module, entry in zip(self._modules, entries, strict=True):
            if entry.get("parametrized") is True:
                _parametrize(module)

    def module(self, number: Any) -> nn.Module:
        """Return the module of an entry; raises `CorruptIncidentError` if there is none."""
        if type(number) is not int or not 0 <= number < len(self._modules):
            raise CorruptIncidentError(f"no module number {number!r}")
        return self._modules[number]

    def read_weakref(self, node: Tagged) -> Any:
        """A weak reference to what something else holds; one to nothing is dead."""
        target = self.decode(node["to"])
        if target is None:
            target = OrderedDict()  # collected at once, as its like was
        return weakref.ref(target)

    def read_handle(self, node: Tagged) -> RemovableHandle:
        """A handle that takes its hook away from the rebuilt module."""
        number = int(node["number"])
        made = object.__new__(RemovableHandle)
        hooks: Any = OrderedDict()
        if "module" in node and node["hooks"] in (*HOOKS, *STATE_HOOKS):
            hooks = _dict_of(self.decode(node["module"]))[node["hooks"]]
        made.hooks_dict_ref = weakref.ref(hooks)
        made.extra_dict_ref = ()
        made.id = number
        RemovableHandle.next_id = max(RemovableHandle.next_id, number + 1)
        return made

    def read_generator(self, node: Tagged) -> torch.Generator:
        """A generator; on another kind of device its state means nothing and is left out."""
        device = self.place(node["device"])
        if device.type == torch.device(node["device"]).type:
            return Decoder.readers["torch_generator"](self, node)  # type: ignore[no-any-return]
        return torch.Generator(device)

    def read_uninitialized(self, node: Tagged) -> torch.Tensor:
        """A parameter or buffer of a lazy module that has not seen its input yet."""
        kind: Any = (
            nn.UninitializedParameter if node["parameter"] is True else nn.UninitializedBuffer
        )
        made: torch.Tensor = kind(
            requires_grad=node["requires_grad"] is True,
            dtype=DTYPES[node["dtype"]],
            device=self.place(node["device"]),
        )
        return made

    def read_apply(self, node: Tagged) -> Any:
        """The `apply` of a `torch.autograd.Function`."""
        kind: Any = self.resolve_class(node["class"])
        if torch.autograd.Function not in mro(kind):
            raise CannotRebuildError(f"{node['class']} is no autograd function any more")
        return kind.apply

    def _class(self, entry: Tagged) -> type[nn.Module]:
        if entry["$"] != "module":
            raise CorruptIncidentError(f"a module was expected, got {str(entry['$'])[:40]!r}")
        if "class" in entry:
            module, _, qualname = str(entry["class"]).partition(":")
            return self._trust.resolve_module(module, qualname)
        return PassThrough if "inside" in entry else MissingModule

    def _fill(self, module: nn.Module, entry: Tagged) -> None:
        held: dict[str, Any] = _dict_of(module)
        held["training"] = entry["training"] is True
        for key, name in (
            ("parameters", "_parameters"),
            ("buffers", "_buffers"),
            ("children", "_modules"),
        ):
            held[name] = {str(child): self.decode(node) for child, node in entry.get(key, ())}
            if any(type(value) is Hole for value in held[name].values()):
                raise CorruptIncidentError(f"{key} of a module refer to what is not made yet")
        held["_non_persistent_buffers_set"] = set(entry.get("transient", ()))
        if "inside" in entry:
            held["inside"] = str(entry["inside"])
        if "missing" in entry:
            missing = entry["missing"]
            held["placeholder"] = Placeholder(str(missing["what"]), str(missing["why"]))
        self._tensor_hooks(held["_parameters"], entry)
        self._hooks(held, entry)
        read_state(self, entry, module)
        if "autocast" in entry:
            held["forward"] = _autocast(entry["autocast"]).bind(module)

    def _hooks(self, held: dict[str, Any], entry: Tagged) -> None:
        for attribute, pairs in entry.get("hooks", ()):
            if attribute not in HOOKS:
                raise CorruptIncidentError(f"no such hooks: {attribute!r}")
            for number, hook in pairs:
                held[attribute][int(number)] = self.decode(hook)
                RemovableHandle.next_id = max(RemovableHandle.next_id, int(number) + 1)
        for attribute, numbers in entry.get("flags", ()):
            if attribute not in FLAGS:
                raise CorruptIncidentError(f"no such hooks: {attribute!r}")
            held[attribute].update((int(number), True) for number in numbers)
        if entry.get("full_backward") is not None:
            held["_is_full_backward_hook"] = entry["full_backward"] is True

    def _tensor_hooks(self, parameters: dict[str, Any], entry: Tagged) -> None:
        for name, attribute, hook in entry.get("tensor_hooks", ()):
            tensor = parameters[name]
            if attribute == "_backward_hooks":
                tensor.register_hook(self.decode(hook))
            else:
                tensor.register_post_accumulate_grad_hook(self.decode(hook))


def _bare(kind: type[nn.Module]) -> nn.Module:
    """Make an instance with the attributes that every module has, and no others."""
    try:
        made: nn.Module = object.__new__(kind)
    except TypeError as fault:
        raise CannotRebuildError(f"{kind.__qualname__} cannot be made: {fault}") from fault
    _dict_of(made).update(_dict_of(nn.Module()))
    return made


def _parametrize(module: nn.Module) -> None:
    """Give a module the class and the properties that `register_parametrization` makes."""
    names = _dict_of(module)["_modules"].get("parametrizations")
    if not isinstance(names, nn.ModuleDict):
        raise CorruptIncidentError("a parametrized module without parametrizations")
    try:
        parametrize._inject_new_class(module)
        for name in names:
            parametrize._inject_property(module, name)
    except (AssertionError, TypeError) as fault:
        raise CorruptIncidentError(f"impossible parametrization: {fault}") from fault


def _autocast(node: Mapping[str, Any]) -> AutocastForward:
    return AutocastForward(
        device=str(node["device"]),
        dtype=DTYPES[node["dtype"]],
        enabled=node["enabled"] is True,
        cache=node["cache"] is True,
        float32=node["float32"] is True,
    )
