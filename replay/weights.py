"""Recorded parameters, buffers and attributes by name, and into a model that somebody gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flightrec.errors import CannotRebuildError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from replay.decoding import Tensors

SHOWN = 4
"""Names in a message about weights that do not fit."""


class RecordedState:
    """What the description of a model says about the state of each of its modules."""

    def __init__(self, node: Any, tensors: Tensors) -> None:
        """Read a description made by `structure.describe`; None where no weights are held."""
        self._tensors = tensors
        self._entries: dict[str, Mapping[str, Any]] = {}
        for entry in () if node is None else node["modules"]:
            self._entries.setdefault(entry["name"], entry)

    def fresh(self, key: str) -> torch.Tensor:
        """Return the recorded value of the parameter `root:name`, on the device of the replay.

        Raises `CannotRebuildError` where the incident has no such parameter.
        """
        root, _, name = key.partition(":")
        owner, _, local = name.rpartition(".")
        found = self._tensor(label(root, owner), "parameters", local)
        if found is None:
            raise CannotRebuildError(f"the incident has no values for the parameter {key!r}")
        return self._tensors.fresh(found)

    def load_into(self, models: Mapping[str, nn.Module]) -> list[str]:
        """Give `models` the recorded state; return notes on what was not recorded.

        Raises `CannotRebuildError` naming the first keys that are missing, left over, or of
        another shape or type.
        """
        if not self._entries:
            return ["no weights were recorded; the given model keeps its own"]
        wrong: list[str] = []
        known: set[str] = set()
        loader = self._tensors.loader()
        for name, module in _labelled(models):
            entry = self._entries.get(name)
            if entry is None:
                if module._parameters or module._buffers:
                    wrong.append(f"module {name!r} was not recorded")
                continue
            known.add(name)
            for table in ("parameters", "buffers"):
                held = getattr(module, f"_{table}")
                for local, index in self._recorded(entry, table):
                    problem = _fill(held, local, None if index is None else loader(index))
                    if problem is not None:
                        wrong.append(f"{name}.{local}".lstrip(".") + f" {problem}")
                recorded = {local for local, _ in self._recorded(entry, table)}
                gone = [each for each, value in held.items() if value is not None]
                wrong += [
                    f"{name}.{each} was not recorded" for each in gone if each not in recorded
                ]
            _set_plain(module, entry)
        wrong += [
            f"module {name!r} is missing"
            for name, entry in self._entries.items()
            if name not in known and (entry.get("parameters") or entry.get("buffers"))
        ]
        if wrong:
            more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
            raise CannotRebuildError(
                f"the recorded weights do not fit the given model: {'; '.join(wrong[:SHOWN])}{more}"
            )
        return ["the model was given, not rebuilt; the recorded weights are loaded into it"]

    def _tensor(self, name: str, table: str, local: str) -> int | None:
        entry = self._entries.get(name, {})
        return next((index for each, index in self._recorded(entry, table) if each == local), None)

    @staticmethod
    def _recorded(entry: Mapping[str, Any], table: str) -> Iterator[tuple[str, int | None]]:
        """Yield name and tensor index of the plain tensors of a module."""
        for local, node in entry.get(table, ()):
            if isinstance(node, dict) and isinstance(node.get("i"), int):
                yield local, node["i"]
            elif node is None:
                yield local, None


def label(root: str, name: str) -> str:
    """Name of a module in a description."""
    return ".".join(part for part in (root, name) if part)


def _labelled(models: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """Yield every module once, under its first name."""
    seen: set[int] = set()
    for root, model in models.items():
        for name, module in model.named_modules():
            if id(module) not in seen:
                seen.add(id(module))
                yield label(root, name), module


def _fill(
    held: dict[str, torch.Tensor | None], local: str, value: torch.Tensor | None
) -> str | None:
    """Copy a recorded tensor into a parameter or buffer; return what is wrong, or None."""
    mine = held.get(local)
    if value is None or mine is None:
        return None if value is mine else "is a tensor on one side only"
    if mine.shape != value.shape or mine.dtype != value.dtype:
        mine_is, value_is = (f"{tuple(t.shape)} {t.dtype}" for t in (mine, value))
        return f"is {mine_is}, recorded {value_is}".replace("torch.", "")
    if mine.stride() == value.stride():
        with torch.no_grad():
            mine.copy_(value)
    else:
        mine.data = value.detach()
    mine.requires_grad_(value.requires_grad)
    return None


def _set_plain(module: nn.Module, entry: Mapping[str, Any]) -> None:
    """Set the train flag, and plain attributes that both sides have: counters, rates, names."""
    module.training = entry.get("training", module.training)
    for name, node in entry.get("state", ()):
        if type(node) in (bool, int, float, str) and type(vars(module).get(name)) is type(node):
            vars(module)[name] = node
