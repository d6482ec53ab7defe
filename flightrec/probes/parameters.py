"""Looks at every gradient after a backward, and at a share of the parameters every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from flightrec.types import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray
    from torch import nn

    from flightrec.buffers.slab import Slab

SHARE_BYTES = 4 * 1024 * 1024
"""Bytes of parameters looked at together, in turn; about 0.2 ms of one core."""

SHARE_COUNT = 16
"""Parameters looked at together; about 20 us of one core."""

SHARE_EVERY = 4
"""Updates between two shares. What they miss shows in the outputs of the next step."""

ASKED = 8
"""Parameters that are asked whether gradients are there; optimizers clear all or none."""

_Group = list[tuple[str, torch.nn.Parameter]]


class ParameterProbe:
    """Knows the parameters of all roots, grouped by device and dtype, tied ones once."""

    def __init__(
        self, roots: Mapping[str, nn.Module], site_name: Callable[[str, str], str]
    ) -> None:
        """Index `roots`; `site_name(root, dotted)` gives the public module name."""
        self._roots = roots
        self._site_name = site_name
        self.refresh()

    def refresh(self) -> None:
        """Index the parameters again, after modules were replaced."""
        self.named: dict[str, nn.Parameter] = {}
        self._names: dict[int, str] = {}
        groups: dict[tuple[torch.device, torch.dtype], _Group] = {}
        for key, root in self._roots.items():
            for name, parameter in root.named_parameters():
                if id(parameter) in self._names:
                    continue
                self._names[id(parameter)] = f"{key}:{name}"
                self.named[f"{key}:{name}"] = parameter
                group = groups.setdefault((parameter.device, parameter.dtype), [])
                group.append((f"{key}:{name}", parameter))
        self._groups = list(groups.values())
        self._sites: dict[tuple[int, int], tuple[tuple[Site, ...], NDArray[np.float64]]] = {}
        trainable = [one for one in self.named.values() if one.requires_grad]
        self._asked = trainable[:: max(1, len(trainable) // ASKED)]
        self._shares = list(self._share_out())
        self._turn = 0

    def _share_out(self) -> Iterator[tuple[tuple[Site, ...], list[nn.Parameter]]]:
        """Cut each group into shares of bounded bytes and count."""
        for group in self._groups:
            share: _Group = []
            nbytes = 0
            for name, parameter in group:
                share.append((name, parameter))
                nbytes += parameter.numel() * parameter.element_size()
                if nbytes >= SHARE_BYTES or len(share) == SHARE_COUNT:
                    yield self._share(share)
                    share, nbytes = [], 0
            if share:
                yield self._share(share)

    def _share(self, share: _Group) -> tuple[tuple[Site, ...], list[nn.Parameter]]:
        sites = tuple(self._site(name, "param", 0) for name, _ in share)
        return sites, [parameter for _, parameter in share]

    def owns(self, parameter_id: int) -> bool:
        """Is this the id of a recorded parameter?"""
        return parameter_id in self._names

    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (root:name, gradient) of every parameter that has one."""
        for name, parameter in self.named.items():
            if parameter.grad is not None:
                yield name, parameter.grad

    def any_gradient(self) -> bool:
        """Do parameters have gradients now? Asks some, spread over the model."""
        return any(parameter.grad is not None for parameter in self._asked)

    def measure_gradients(self, slab: Slab, nth: int) -> list[int]:
        """Put the norm of every gradient into the slab; `nth` counts backwards of the step.

        Returns the versions of the gradients, to see later whether somebody changed one.
        """
        versions = []
        for number, group in enumerate(self._groups):
            gradients = [parameter.grad for _, parameter in group]
            present = [gradient for gradient in gradients if gradient is not None]
            sites, numels = self._group_sites(number, "param_grad", nth)
            if len(present) < len(gradients):
                kept = [place for place, grad in enumerate(gradients) if grad is not None]
                sites, numels = tuple(sites[place] for place in kept), numels[kept]
            if present and not present[0].is_sparse:
                slab.put_norms(sites, present, numels)
            else:
                slab.put_norms(sites, present)
            versions += [gradient._version for gradient in present]
        return versions

    def versions(self) -> list[int]:
        """Return the versions of the gradients there are now, in the same order."""
        gradients = (parameter.grad for group in self._groups for _, parameter in group)
        return [gradient._version for gradient in gradients if gradient is not None]

    def measure_of(self, optimizer: torch.optim.Optimizer, slab: Slab) -> None:
        """Put the norms of the gradients that one optimizer is about to use into the slab."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self._names.get(id(parameter))
                if name is not None and parameter.grad is not None:
                    slab.put_norms((self._site(name, "param_grad", 0),), [parameter.grad])

    def measure_share(self, slab: Slab) -> None:
        """Put the norms of the next share of the parameters into the slab, when it is time."""
        turn, off = divmod(self._turn, SHARE_EVERY)
        self._turn += 1
        if self._shares and not off:
            sites, parameters = self._shares[turn % len(self._shares)]
            slab.put_norms(sites, [parameter.detach() for parameter in parameters])

    def measure_all(self, slab: Slab) -> None:
        """Put the norm of every parameter into the slab."""
        for sites, parameters in self._shares:
            slab.put_norms(sites, [parameter.detach() for parameter in parameters])

    def learns_from_zero(self) -> bool:
        """Does an all-zero parameter of two or more dimensions get a non-zero gradient?

        Such a layer is a zero-initialised head or gate at its first steps, and its zero output
        is meant. Costs a pass over the parameters, so it is asked only when something is zero.
        """
        for parameter in self.named.values():
            gradient = parameter.grad
            if gradient is None or parameter.dim() < 2 or parameter.numel() == 0:
                continue
            if not bool(torch.count_nonzero(parameter.detach())) and _any_nonzero(gradient):
                return True
        return False

    def _group_sites(
        self, number: int, kind: str, nth: int
    ) -> tuple[tuple[Site, ...], NDArray[np.float64]]:
        key = (number, nth)
        known = self._sites.get(key)
        if known is None:
            group = self._groups[number]
            sites = tuple(self._site(name, kind, nth) for name, _ in group)
            numels = np.array([parameter.numel() for _, parameter in group], dtype=np.float64)
            known = self._sites[key] = sites, numels
        return known

    def _site(self, name: str, kind: str, nth: int) -> Site:
        root, _, dotted = name.partition(":")
        module, _, leaf = dotted.rpartition(".")
        return Site(module=self._site_name(root, module), kind=kind, leaf=leaf, call=nth)  # type: ignore[arg-type] # kind is one of SITE_KINDS


def _any_nonzero(gradient: torch.Tensor) -> bool:
    values = gradient._values() if gradient.is_sparse else gradient
    return bool(torch.count_nonzero(values.detach()))
