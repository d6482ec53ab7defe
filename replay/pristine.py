"""Keep rebuilt models as they were recorded, however often a forward changes them."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
"""Attributes of a module that are restored entry by entry; the rest are plain values."""

_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
_CONTAINERS = (list, set, deque, *_MAPPINGS)
"""Exact types whose content is restored in place, so that shared ones stay shared."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What tells cheaply whether a parameter is still what it was."""

    parameter: torch.Tensor
    pointer: int
    checksum: int
    requires_grad: bool


class Pristine:
    """Snapshot of models, taken once, put back after each run.

    Buffers and tensors in plain attributes are copied. Parameters are not: a changed address
    or checksum shows that one was written (the version counter misses `.data`), and `refresh`
    gives its value back. The checksum reads 20 GB/s, about 1% of a plain step.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        refresh: Callable[[str], torch.Tensor] | None = None,
    ) -> None:
        """Remember `models`; without `refresh("root:name")` the parameters are copied too."""
        self._refresh = refresh
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._contents: dict[int, tuple[Any, Any]] = {}
        self._modules: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = []
        self._plain: dict[int, dict[str, Any]] = {}
        modules = (module for model in models.values() for module in model.modules())
        for module in {id(module): module for module in modules}.values():
            self._remember(module.__dict__)
            self._plain[id(module)] = self._modules[-1][2]
        self._known: dict[str, _Known] = {}
        for root, model in models.items():
            for name, parameter in model.named_parameters():
                self._known[f"{root}:{name}"] = _describe(parameter)
                if refresh is None:
                    self._keep(parameter)

    def _remember(self, attributes: dict[str, Any]) -> None:
        tables = {name: _shallow(attributes[name]) for name in _TABLES if name in attributes}
        plain = {
            name: value
            for name, value in attributes.items()
            if name not in tables and not name.endswith("_hooks")
        }
        self._modules.append((attributes, tables, plain))
        for value in (*plain.values(), *attributes.get("_buffers", {}).values()):
            self._keep(value)

    def _keep(self, value: Any) -> None:
        """Copy what can change in place: tensors, and containers that hold them."""
        if id(value) in self._contents or id(value) in self._copies:
            return
        if isinstance(value, torch.Tensor):
            if _copyable(value):
                self._copies[id(value)] = (value, value.detach().clone())
        elif type(value) in _CONTAINERS:
            self._contents[id(value)] = (value, _shallow(value))
            for item in value.values() if isinstance(value, dict) else value:
                self._keep(item)

    def knows(self, module: nn.Module, name: str) -> bool:
        """Did `module` have a plain attribute of that name?"""
        return name in self._plain.get(id(module), {})

    def attribute(self, module: nn.Module, name: str) -> Any:
        """Return a copy of a plain attribute as it was; what cannot change is shared."""
        return thaw(self._former(self._plain[id(module)][name]))

    def _former(self, value: Any) -> Any:
        """Return a tensor or container with the content it had, to be read only."""
        if id(value) in self._copies:
            return self._copies[id(value)][1]
        if id(value) not in self._contents:
            return value
        former = copy.copy(value)
        _refill(former, self._contents[id(value)][1])
        items = former.items() if isinstance(former, dict) else enumerate(former)
        if not isinstance(former, set):
            for key, item in list(items):
                former[key] = self._former(item)
        return former

    def restore(self) -> list[str]:
        """Put everything back; return the `root:name` of parameters that had been written."""
        for attributes, tables, plain in self._modules:
            for name, entries in tables.items():
                _refill(attributes[name], entries)
            for name in attributes.keys() - plain.keys() - tables.keys():
                if not name.endswith("_hooks"):
                    del attributes[name]
            attributes.update(plain)
        for container, entries in self._contents.values():
            _refill(container, entries)
        written = [key for key, known in self._known.items() if self._put_back(key, known)]
        for tensor, kept in self._copies.values():
            write(tensor, kept)
        return written

    def _put_back(self, key: str, known: _Known) -> bool:
        """Restore one parameter's gradient, flag and value; tell whether it was written."""
        parameter = known.parameter
        parameter.grad = None
        if parameter.requires_grad != known.requires_grad:
            parameter.requires_grad_(known.requires_grad)
        now = _describe(parameter)
        if (now.pointer, now.checksum) == (known.pointer, known.checksum):
            return False
        if self._refresh is not None:
            write(parameter, self._refresh(key))
            self._known[key] = _describe(parameter)
        return True


def write(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Give `tensor` the content of `value` without moving its version counter.

    A graph that saved the tensor stays usable, as it does for a write through `.data`.
    """
    if tensor.shape == value.shape and tensor.dtype == value.dtype:
        tensor.data.copy_(value)
    else:
        tensor.data = value.detach().clone()


def thaw(value: Any) -> Any:
    """Copy tensors and nested plain containers, so that a forward may change them; share all else.

    Parameters are shared: as an attribute they stand for a module's own.
    """
    if type(value) is tuple:
        return tuple(thaw(item) for item in value)
    if type(value) is torch.Tensor and _copyable(value):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) not in _CONTAINERS:
        return value
    copied = copy.copy(value)
    copied.clear()
    if type(value) in _MAPPINGS:
        copied.update({key: thaw(item) for key, item in value.items()})
    elif type(value) is set:
        copied.update(value)
    else:
        copied.extend(thaw(item) for item in value)
    return copied


def _copyable(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.device.type != "meta"


def _shallow(container: Any) -> Any:
    return dict(container) if isinstance(container, dict) else type(container)(container)


def _refill(container: Any, entries: Any) -> None:
    """Give a list, dict, set or deque its former items, the object staying the same."""
    container.clear()
    if isinstance(container, (dict, set)):
        container.update(entries)
    else:
        container.extend(entries)


def _describe(parameter: torch.Tensor) -> _Known:
    if not _copyable(parameter):
        return _Known(parameter, 0, parameter._version, parameter.requires_grad)
    return _Known(parameter, parameter.data_ptr(), checksum(parameter), parameter.requires_grad)


def checksum(tensor: torch.Tensor) -> int:
    """Sum the bits of a strided tensor as 64-bit integers; changes with nearly every write."""
    flat = tensor.detach().reshape(-1)
    if flat.dtype.is_complex:
        flat = torch.view_as_real(flat).reshape(-1)
    size = flat.element_size()
    whole = flat.numel() * size // 8 * 8 // size
    if flat.data_ptr() % 8 or flat.storage_offset() * size % 8:
        whole = 0
    total = int(flat[:whole].view(torch.int64).sum()) if whole else 0
    rest = flat[whole:]
    return total + int(rest.view(torch.uint8).sum()) if rest.numel() else total
