"""What a forward may change besides its outputs: buffers, plain attributes, training flags."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch

from flightrec.types import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn

    from flightrec.buffers.slab import Slab

SMALL_BUFFER = 256 * 1024
"""Bytes up to which a buffer is copied before every call; larger ones when their version moved."""

SCALARS = (bool, int, float, str, type(None))
INTERNAL = frozenset(
    {
        "training",
        "_parameters",
        "_buffers",
        "_non_persistent_buffers_set",
        "_modules",
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_backward_hooks",
        "_backward_pre_hooks",
        "_is_full_backward_hook",
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
        "_flat_weights",
        "_flat_weight_refs",
        "_all_weights",
    }
)
"""Attributes of `nn.Module` that a forward does not count or cache in."""


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The state right before one call; equal parts are shared between snapshots."""

    flat: tuple[tuple[_Plan, torch.Tensor], ...]
    """Copies of the small buffers, one tensor (N,) per device and dtype."""

    large: tuple[tuple[str, torch.Tensor], ...]
    """(root:qualified name, copy on the buffer's device) of the others."""

    attributes: tuple[tuple[str, dict[str, Any]], ...]
    """(root:module, scalar attributes and shallow copies of containers and tensors)."""

    training: tuple[str, ...]
    """root:module of every module in training mode."""

    nbytes: int
    """Bytes of the copies that no earlier snapshot holds."""

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (root:qualified name, value before the call) of every buffer."""
        for plan, joined in self.flat:
            for name, start, shape in plan.layout:
                yield name, joined[start : start + shape.numel()].view(shape)
        yield from self.large


@dataclass(slots=True)
class _Plan:
    """How the small buffers of one device and dtype are copied with one kernel."""

    layout: list[tuple[str, int, torch.Size]] = field(default_factory=list)
    flat: list[torch.Tensor] = field(default_factory=list)
    sites: tuple[Site, ...] = ()
    end: int = 0
    nbytes: int = 0


@dataclass(slots=True)
class _Watched:
    """One module: where its attributes live and what was last seen of them."""

    place: str
    values: dict[str, Any]
    size: int = -1
    names: tuple[str, ...] = ()
    pick: Callable[[dict[str, Any]], tuple[Any, ...]] | None = None
    seen: tuple[Any, ...] = ()
    mutable: tuple[int, ...] = ()
    marks: list[object] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)


class StateProbe:
    """Reads the changeable state of all modules; built once, cheap to read.

    Scalars are compared by identity; lists, dicts, sets and deques by the identity of their
    items; tensors kept as attributes by identity and version. `_version` misses writes through
    NumPy and `.data`, so small buffers are copied at every read; a large one is copied when its
    version moved.
    """

    def __init__(self, roots: Mapping[str, nn.Module]) -> None:
        """Index the modules below `roots`; call `refresh` when modules were replaced."""
        self._roots = roots
        self._large: dict[str, tuple[int, int, torch.Tensor]] = {}
        self._measured: dict[str, tuple[int, int]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Index the modules again."""
        self._watched: list[_Watched] = []
        self._buffers: list[tuple[str, dict[str, torch.Tensor | None], str]] = []
        self._places: list[tuple[int, int]] = []
        self._plans: list[_Plan] = []
        self._others: list[tuple[str, torch.Tensor]] = []
        for place, module in walk(self._roots):
            self._watched.append(_Watched(place=place, values=module.__dict__))
            prefix = place if place.endswith(":") else f"{place}."
            for name in module._buffers:
                self._buffers.append((prefix + name, module._buffers, name))

    def read(self) -> StateSnapshot:
        """Return the state now; copies buffers without waiting for the device."""
        attributes = []
        training = []
        for watched in self._watched:
            if watched.values.get("training"):
                training.append(watched.place)
            kept = _read_attributes(watched)
            if kept:
                attributes.append((watched.place, kept))
        with torch.no_grad():
            self._plan_buffers()
            flat = tuple((plan, torch.cat(plan.flat)) for plan in self._plans)
            large, nbytes = self._copy_large()
        return StateSnapshot(
            flat=flat,
            large=large,
            attributes=tuple(attributes),
            training=tuple(training),
            nbytes=nbytes + sum(plan.nbytes for plan in self._plans),
        )

    def measure(self, slab: Slab, site_name: Callable[[str, str], str]) -> None:
        """Put the norm of every floating buffer into the slab; large ones when they changed.

        `site_name(root, dotted)` gives the public module name.
        """
        self._plan_buffers()
        for plan in self._plans:
            if not plan.flat[0].dtype.is_floating_point:
                continue
            if not plan.sites:
                plan.sites = tuple(_site(name, site_name) for name, _, _ in plan.layout)
            slab.put_norms(plan.sites, plan.flat)
        for name, tensor in self._others:
            last = self._measured.get(name)
            mark = (id(tensor), _version(tensor))
            if last != mark and tensor.device.type != "meta":
                self._measured[name] = mark
                slab.put_norms((_site(name, site_name),), [tensor.detach()])

    def _plan_buffers(self) -> None:
        """Lay the buffers out anew where one was replaced, resized or moved."""
        tensors = [owner.get(key) for _, owner, key in self._buffers]
        places = [(id(t), 0 if t is None or not _plain(t) else t.data_ptr()) for t in tensors]
        if places == self._places:
            return
        self._places = places
        plans: dict[tuple[torch.device, torch.dtype], _Plan] = {}
        self._others = []
        for (name, _, _), tensor in zip(self._buffers, tensors, strict=True):
            if tensor is None:
                continue
            size = tensor.numel() * tensor.element_size()
            if not _plain(tensor) or size > SMALL_BUFFER or not tensor.is_contiguous():
                self._others.append((name, tensor))
                continue
            plan = plans.setdefault((tensor.device, tensor.dtype), _Plan())
            plan.layout.append((name, plan.end, tensor.shape))
            plan.flat.append(tensor.detach().view(-1))
            plan.end += tensor.numel()
            plan.nbytes += size
        self._plans = list(plans.values())

    def _copy_large(self) -> tuple[tuple[tuple[str, torch.Tensor], ...], int]:
        copies = []
        nbytes = 0
        for name, tensor in self._others:
            last = self._large.get(name)
            if last is None or last[0] != id(tensor) or last[1] != _version(tensor):
                copy = tensor if tensor.device.type == "meta" else tensor.detach().clone()
                last = (id(tensor), _version(tensor), copy)
                self._large[name] = last
                nbytes += tensor.numel() * tensor.element_size()
            copies.append((name, last[2]))
        return tuple(copies), nbytes


def _read_attributes(watched: _Watched) -> dict[str, Any]:
    values = watched.values
    if len(values) != watched.size:
        watched.names = tuple(name for name in values if name not in INTERNAL)
        watched.size = len(values)
        # two more names, so that the getter returns a tuple; every module has these
        watched.pick = itemgetter(*watched.names, "_modules", "_modules")
        watched.seen = ()
    assert watched.pick is not None
    picked = watched.pick(values)
    same = len(picked) == len(watched.seen) and all(map(is_, picked, watched.seen))
    if same and not watched.mutable:
        return watched.kept
    marks = [_mark(picked[place]) for place in watched.mutable] if same else []
    if same and marks == watched.marks:
        return watched.kept
    named = dict(zip(watched.names, picked, strict=False))
    watched.seen = picked
    watched.mutable = tuple(
        place for place, value in enumerate(named.values()) if _container_or_tensor(value)
    )
    watched.marks = [_mark(picked[place]) for place in watched.mutable]
    watched.kept = {name: _shallow(value) for name, value in named.items() if _changeable(value)}
    return watched.kept


def walk(roots: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """Yield ("root:dotted name", module) of every module once, in `named_modules` order."""
    seen: set[nn.Module] = set()
    for key, root in roots.items():
        for name, module in root.named_modules(memo=seen):
            yield f"{key}:{name}", module


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _site(name: str, site_name: Callable[[str, str], str]) -> Site:
    root, _, dotted = name.partition(":")
    module, _, leaf = dotted.rpartition(".")
    return Site(module=site_name(root, module), kind="buffer", leaf=leaf)


def _plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided and tensor.device.type != "meta" and not tensor.is_quantized
    )


def _mark(value: Any) -> object:
    """A cheap stand-in for a container or tensor that differs when the value does."""
    if isinstance(value, torch.Tensor):
        return (id(value), _version(value))
    items = value.values() if type(value) is dict else value
    return tuple(map(id, items)) if len(value) <= 64 else len(value)


def _container_or_tensor(value: object) -> bool:
    return type(value) in (list, set, deque, dict) or isinstance(value, torch.Tensor)


def _changeable(value: object) -> bool:
    return type(value) in SCALARS or _container_or_tensor(value)


def _shallow(value: Any) -> Any:
    """Copy what the forward could change in place, one level deep."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.device.type != "meta" else value
    if type(value) in (list, set, deque, dict):
        return value.copy()
    return value
