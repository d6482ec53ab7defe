"""The statistics of one step, kept on their device until one read brings them to the host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from flightrec.types import Stat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flightrec.types import Site

# Shape letters: S = sites in execution order, K = statistics (columns of types.Stat).

CONVERTED_BELOW = 1 << 20
"""fp8 tensors have no reductions; up to this many elements they are converted first."""


@dataclass(slots=True)
class _Block:
    """Watched tensors of one device: pending scalars there, the tensors until they are read."""

    sites: tuple[Site, ...]
    tensors: list[torch.Tensor]
    scalars: torch.Tensor
    """(S,) L2 norms, or (S, 2) minima and maxima."""

    numels: NDArray[np.float64] | None = None
    """(S,) elements of each tensor, where the caller knows them already."""


def measurable(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return what the reductions can take of `tensor`, or None where there is nothing to measure.

    Gates on layout, size and dtype before any reduction: `aminmax` raises on empty, fp8 and
    complex tensors. Sparse tensors give their values, complex ones their real view.
    """
    if tensor.layout is not torch.strided:
        if tensor.layout is torch.sparse_coo:
            tensor = tensor._values()
        elif tensor.layout in (torch.sparse_csr, torch.sparse_csc):
            tensor = tensor.values()
        else:
            return None
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point() or tensor.numel() == 0 or tensor.device.type == "meta":
        return None
    if tensor.element_size() == 1:
        return tensor.float() if tensor.numel() <= CONVERTED_BELOW else None
    return tensor


class Slab:
    """Collects statistics without waiting for the device; `read` waits once per device."""

    def __init__(self) -> None:
        """Start empty."""
        self._pending: list[_Block] = []
        self._sites: tuple[Site, ...] = ()
        self._stats: list[NDArray[np.float64]] = []

    def put_range(self, site: Site, tensor: torch.Tensor) -> None:
        """Watch MIN, MAX and ABSMAX of a tensor of any shape; what cannot be measured is left."""
        values = measurable(tensor.detach())
        if values is not None:
            pair = torch.stack(torch.aminmax(values)).unsqueeze(0)
            self._pending.append(_Block((site,), [values], pair))

    def put_norms(
        self,
        sites: tuple[Site, ...],
        tensors: list[torch.Tensor],
        numels: NDArray[np.float64] | None = None,
    ) -> None:
        """Watch the L2 norm of tensors of one device and dtype with few kernels."""
        if not tensors:
            return
        try:
            norms = torch.stack(torch._foreach_norm(tensors))
        except (RuntimeError, TypeError):  # sparse, fp8, complex or mixed: one by one
            self._put_mixed(sites, tensors)
            return
        self._pending.append(_Block(sites, tensors, norms, numels))

    def _put_mixed(self, sites: tuple[Site, ...], tensors: list[torch.Tensor]) -> None:
        for site, tensor in zip(sites, tensors, strict=True):
            values = measurable(tensor)
            if values is not None:
                norm = torch.linalg.vector_norm(values).reshape(1)
                self._pending.append(_Block((site,), [values], norm))

    @property
    def pending(self) -> bool:
        """Is anything waiting to be read?"""
        return bool(self._pending)

    @property
    def count(self) -> int:
        """Rows put so far, read or pending."""
        return len(self._sites) + sum(len(block.sites) for block in self._pending)

    def read(self) -> None:
        """Bring the pending scalars to the host."""
        pending, self._pending = self._pending, []
        for block in pending:
            self._sites += block.sites
            self._stats.append(_statistics(block))

    def rows(self) -> tuple[tuple[Site, ...], NDArray[np.float64]]:
        """Return what was read so far: sites in execution order, matrix (S, K)."""
        if not self._stats:
            return (), np.empty((0, len(Stat)))
        if len(self._stats) > 1:
            self._stats = [np.concatenate(self._stats)]
        return self._sites, self._stats[0]

    def clear(self) -> None:
        """Forget everything, read or pending."""
        self._pending.clear()
        self._sites = ()
        self._stats.clear()


def _statistics(block: _Block) -> NDArray[np.float64]:
    """Fill rows (S, K); exact counts are made only where a scalar is not finite."""
    values = block.scalars.to(dtype=torch.float64, device="cpu").numpy()
    stats_SK = np.full((len(block.sites), len(Stat)), math.nan)
    if block.numels is not None:
        stats_SK[:, Stat.NUMEL] = block.numels
    else:
        stats_SK[:, Stat.NUMEL] = [tensor.numel() for tensor in block.tensors]
    stats_SK[:, Stat.NAN] = stats_SK[:, Stat.INF] = 0
    if values.ndim == 2:
        stats_SK[:, Stat.MIN], stats_SK[:, Stat.MAX] = values[:, 0], values[:, 1]
        stats_SK[:, Stat.ABSMAX] = np.abs(values).max(1)
        finite = np.isfinite(values).all(1)
    else:
        stats_SK[:, Stat.L2] = values
        stats_SK[values == 0, Stat.ABSMAX] = 0
        finite = np.isfinite(values)
    for row in np.flatnonzero(~finite):
        tensor = measurable(block.tensors[int(row)])
        if tensor is None:
            continue
        stats_SK[row, Stat.NAN] = float(torch.isnan(tensor).sum())
        stats_SK[row, Stat.INF] = float(torch.isinf(tensor).sum())
        if values.ndim == 1 and stats_SK[row, Stat.NAN] + stats_SK[row, Stat.INF] == 0:
            # the norm itself overflowed: finite half values of large magnitude
            stats_SK[row, Stat.L2] = float(torch.linalg.vector_norm(tensor, dtype=torch.float64))
    return stats_SK
