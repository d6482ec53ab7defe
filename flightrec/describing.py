"""Modules into nodes: everything in them that a replay needs to make them without constructors."""

from __future__ import annotations

import weakref
from types import BuiltinFunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from flightrec.guard import FAULTS, strict
from flightrec.needs import Need, Role, names_in, never
from flightrec.tree.code import write_builtin, write_method
from flightrec.tree.encoder import Encoder
from flightrec.tree.naming import class_name, importable_class, mro
from flightrec.tree.objects import state_of, why_opaque
from flightrec.wrappers import installs_itself, is_ours, known_hook, unpatched, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flightrec.tree import Node, Tagged, TensorTable

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Dictionaries of hooks that act during forward and backward."""

FLAGS = (
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)
"""Dictionaries whose keys say how the hook of that number is called."""

STATE_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
"""Hooks of `state_dict`, which a replay does not use; not recorded."""

_APART = {
    *HOOKS,
    *FLAGS,
    *STATE_HOOKS,
    "training",
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_is_full_backward_hook",
}
_TO_TRAINER = frozenset({"_trainer", "_fabric", "_fabric_optimizers"})
_DYNAMIC = "Parametrized"
_LOCAL = "its class is defined inside a function, so no name leads to it"
_ADVICE = "pass --model package.module:factory at replay"
_dict_of = vars(nn.Module)["__dict__"].__get__


class ReplayableEncoder(Encoder):
    """Encodes values; a class or function that no replay would accept is missing from the start.

    Otherwise one `time.time` among the attributes of a batch would make the incident refused.
    """

    def encode(self, value: Any, name: str = "") -> Node:
        """Return the node of a value, without names that no replay would accept."""
        node = super().encode(value, name)
        if isinstance(node, dict):
            for need in names_in(node):
                if (why := never(need)) is not None:
                    return self.missing(value, name, f"{need.name}: {why}")
        return node


class ModuleEncoder(ReplayableEncoder):
    """Encodes values with the modules in them; each module is written once, in `entries`.

    A module inside a value becomes `{"$": "submodule", "i": n}`, the n-th of the entries.
    """

    writers: ClassVar[Mapping[type, Callable[[Any, Any, str], Node]]] = {
        **Encoder.writers,
        weakref.ReferenceType: lambda encoder, value, name: encoder.write_weakref(value, name),
        RemovableHandle: lambda encoder, value, name: encoder.write_handle(value, name),
        BuiltinFunctionType: lambda encoder, value, name: encoder.write_bound(value, name),
        MethodType: lambda encoder, value, name: encoder.write_bound(value, name),
        nn.UninitializedParameter: lambda _encoder, value, _name: _uninitialized(value),
        nn.UninitializedBuffer: lambda _encoder, value, _name: _uninitialized(value),
    }

    def __init__(self, table: TensorTable, roots: Mapping[str, nn.Module]) -> None:
        """Write tensors to `table`; modules inside `roots` are named as in `named_modules()`."""
        super().__init__(table)
        self.classes: set[type] = set()
        self.entries: list[Tagged] = []
        self._labels: dict[int, str] = {}
        self._numbers: dict[int, int] = {}
        self._queue: list[tuple[nn.Module, str]] = []
        self._owners: dict[int, tuple[nn.Module, str]] = {}
        self._noted: set[str] = set()
        for key, root in roots.items():
            for label, module in _walk(root, key):
                self._labels.setdefault(id(module), label)
                self._note_hooks(module)

    def encode_module(self, module: nn.Module, name: str = "") -> Node:
        """Return the reference to a module, which is written later unless it was already."""
        number = self._numbers.get(id(module))
        if number is None:
            number = self._numbers[id(module)] = len(self._numbers)
            self._queue.append((module, self._labels.get(id(module), name)))
            self._note_hooks(module)
        return {"$": "submodule", "i": number}

    def finish(self) -> None:
        """Write all modules that were met; what they hold may bring more."""
        while self._queue:
            module, label = self._queue.pop(0)
            try:
                entry = self._entry(module, label)
            except Exception as fault:
                FAULTS["structure"] += 1
                if strict():
                    raise
                why = f"{type(fault).__name__} while it was described"
                entry = {"$": "module", "name": label, "training": True}
                entry["missing"] = {"what": label or "model", "why": why}
                self.note(label or "model", why)
            self.entries.append(entry)

    def note(self, what: str, why: str, *, once: str = "") -> None:
        """List something in `not_captured`, once for each `once` (or `what`)."""
        if (once or what) not in self._noted:
            self._noted.add(once or what)
            self.not_captured.append({"what": what, "why": why})

    def write_weakref(self, value: weakref.ReferenceType[Any], name: str) -> Node:
        """A weak reference to a tensor or a known module; others would be dead after a rebuild."""
        target = value()
        if isinstance(target, torch.Tensor) or id(target) in self._labels:
            return {"$": "weakref", "to": self.encode(target, name)}
        return {"$": "weakref", "to": None}

    def write_handle(self, value: RemovableHandle, name: str) -> Node:
        """A handle of a hook: the module and the dictionary in it, and the hook's number."""
        node = self.open(value, "handle")
        owner = self._owners.get(id(value.hooks_dict_ref()))
        node["number"] = value.id
        if owner is not None:
            node |= {"module": self.encode(owner[0], name), "hooks": owner[1]}
        return node

    def write_bound(self, value: BuiltinFunctionType | MethodType, name: str) -> Node:
        """A built-in function or a method; it may be the `apply` of an autograd function."""
        owner = value.__self__
        if isinstance(owner, type) and torch.autograd.Function in mro(owner):
            title = importable_class(owner)
            if title is not None and value.__name__ == "apply":
                return {"$": "apply", "class": title}
        if isinstance(value, MethodType):
            return write_method(self, value, name)
        return write_builtin(self, value, name)

    def _note_hooks(self, module: nn.Module) -> None:
        held = _dict_of(module)
        for attribute in (*HOOKS, *STATE_HOOKS):
            if held.get(attribute) is not None:
                self._owners[id(held[attribute])] = module, attribute

    def _entry(self, module: nn.Module, label: str) -> Tagged:
        kind = type(module)
        self.classes.update(base for base in mro(kind) if base is not object)
        node: Tagged = {
            "$": "module",
            "name": label,
            "training": _dict_of(module).get("training") is True,
        }
        through = wrapped(module)
        if through is not None:
            child, wrapper = through
            self.note(f"{label or 'model'}: {wrapper}", "replay runs the module inside it")
            node |= {"inside": child, "children": self._pairs({child: module._modules[child]}, "")}
            return node
        if isinstance(module, torch.jit.ScriptModule):
            return self._opaque(node, module, label, "a compiled program has no Python state")
        title, dynamic, why = _title(kind)
        if title is None:
            return self._opaque(node, module, label, str(why))
        node["class"] = title
        if dynamic:
            node["parametrized"] = True
        self._fill(node, module, label)
        return node

    def _opaque(self, node: Tagged, module: nn.Module, label: str, why: str) -> Tagged:
        """Write what is left of a module whose class cannot be made again."""
        title = class_name(type(module)).replace(":", ".")
        where = f"{title}, first at {label or 'the root'}"
        self.note(where, f"{why}; {_ADVICE}", once=title)
        node["missing"] = {"what": f"{label or 'model'} ({title})", "why": why}
        compiled = isinstance(module, torch.jit.ScriptModule)
        parameters = dict(module.named_parameters(recurse=compiled))
        buffers = dict(module.named_buffers(recurse=compiled))
        children = {} if compiled else dict(module.named_children())
        self._tensors(node, parameters, buffers, label)
        node["children"] = self._pairs(children, label)
        return node

    def _fill(self, node: Tagged, module: nn.Module, label: str) -> None:
        held = dict(_dict_of(module))
        held, autocast, note = unpatched(module, held)
        if note is not None:
            self.note(f"{label or 'model'}: {note.partition(':')[0]}", note.partition(": ")[2])
        if autocast is not None:
            node["autocast"] = {
                "device": autocast.device,
                "dtype": str(autocast.dtype).removeprefix("torch."),
                "enabled": autocast.enabled,
                "cache": autocast.cache,
                "float32": autocast.float32,
            }
        self._tensors(node, held.get("_parameters", {}), held.get("_buffers", {}), label)
        transient = held.get("_non_persistent_buffers_set")
        if transient:
            node["transient"] = sorted(transient)
        node["children"] = self._pairs(held.get("_modules", {}), label)
        self._hooks(node, held, label)
        state = {key: value for key, value in held.items() if key not in _APART}
        if any(base.__name__ == "LightningModule" for base in mro(type(module))):
            state |= dict.fromkeys(_TO_TRAINER & set(state))
        node["state"] = self._pairs(state, label)
        node["slots"] = self._pairs(dict(state_of(module)[1]), label)
        for key in ("children", "state", "slots"):
            if not node[key]:
                del node[key]

    def _tensors(
        self, node: Tagged, parameters: Mapping[str, Any], buffers: Mapping[str, Any], label: str
    ) -> None:
        for key, found in (("parameters", parameters), ("buffers", buffers)):
            if found:
                self.role = "param" if key == "parameters" else "buffer"
                node[key] = self._pairs(found, label)
                self.role = "value"
        self._tensor_hooks(node, parameters, label)

    def _tensor_hooks(self, node: Tagged, parameters: Mapping[str, Any], label: str) -> None:
        found = []
        for name, parameter in parameters.items():
            for attribute in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                hooks = getattr(parameter, attribute, None) or {}
                for hook in hooks.values():
                    where = f"{label}.{name}.{attribute}"
                    if not is_ours(hook) and (encoded := self._hook(hook, where)) is not None:
                        found.append([name, attribute, encoded])
        if found:
            node["tensor_hooks"] = found

    def _hooks(self, node: Tagged, held: Mapping[str, Any], label: str) -> None:
        kept: dict[str, list[Any]] = {}
        numbers: set[int] = set()
        for attribute in HOOKS:
            for number, hook in (held.get(attribute) or {}).items():
                if is_ours(hook) or installs_itself(hook):
                    continue
                encoded = self._hook(hook, f"{label}.{attribute}")
                if encoded is not None:
                    kept.setdefault(attribute, []).append([number, encoded])
                    numbers.add(number)
        flags = [[name, sorted(numbers & set(held.get(name) or ()))] for name in FLAGS]
        if kept:
            node["hooks"] = [[attribute, pairs] for attribute, pairs in kept.items()]
            node["flags"] = [pair for pair in flags if pair[1]]
            node["full_backward"] = held.get("_is_full_backward_hook")

    def _hook(self, hook: Any, where: str) -> Node:
        """Return the node of a hook, or None for one that must be left out, with a note."""
        encoded = self.encode(known_hook(hook), where)
        if isinstance(encoded, dict) and encoded["$"] == "missing":
            return None
        return encoded

    def _pairs(self, found: Mapping[Any, Any], label: str) -> list[list[Node]]:
        start = f"{label}." if label else ""
        return [[name, self.encode(value, f"{start}{name}")] for name, value in found.items()]


def _walk(root: nn.Module, key: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield modules as `named_modules()` does, each once, without calling their own methods."""
    seen: set[int] = set()
    stack = [(key, root)]
    while stack:
        label, module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield label, module
        children = _dict_of(module).get("_modules")
        if isinstance(children, dict):
            found = [
                (f"{label}.{name}" if label else str(name), child)
                for name, child in children.items()
                if isinstance(child, nn.Module)
            ]
            stack += reversed(found)


def _uninitialized(value: Any) -> Node:
    return {
        "$": "uninitialized",
        "parameter": type(value) is nn.UninitializedParameter,
        "requires_grad": value.requires_grad,
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": str(value.device),
    }


def _title(kind: type) -> tuple[str | None, bool, str | None]:
    """Return the name of a module's class, whether it is parametrized, and why it has no name."""
    base = kind.__bases__[0]
    if kind.__module__ == nn.utils.parametrize.__name__ and kind.__name__.startswith(_DYNAMIC):
        title, _, why = _title(base)
        return title, True, why
    if "<locals>" in kind.__qualname__:
        return None, False, _LOCAL
    why = why_opaque(kind)
    title = importable_class(kind)
    if title is None:
        return None, False, why or "its class cannot be imported under its own name"
    why = why or never(Need(Role.MODULE, title))
    return (title if why is None else None), False, why
