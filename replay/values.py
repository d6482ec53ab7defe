"""Look at the values of tensors and change them: finite, uneven, first bad one, bad rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from replay.meter import REDUCIBLE, Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replay.oplog import Flags


def make_finite(tensor: torch.Tensor) -> None:
    """Replace NaN and infinities by 0, in place."""
    with torch.no_grad():
        values = _values(tensor)
        if values.dtype in REDUCIBLE:
            values.nan_to_num_(0.0, 0.0, 0.0)
        else:
            values.copy_(values.float().nan_to_num_(0.0, 0.0, 0.0).to(values.dtype))


def finite_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in which NaN and infinities are 0."""
    copied = tensor.clone()
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        make_finite(copied)
    return copied


def _values(tensor: torch.Tensor) -> torch.Tensor:
    """Return the real numbers that a tensor holds, shared with it."""
    plain = tensor.detach()
    if plain.is_sparse:
        plain = plain._values()
    return torch.view_as_real(plain.resolve_conj()) if plain.dtype.is_complex else plain


def make_uneven(size: float) -> Callable[[torch.Tensor], None]:
    """Return a function that fills a tensor with unequal values of magnitude up to `size`."""

    def fill(tensor: torch.Tensor) -> None:
        with torch.no_grad():
            steps = torch.arange(tensor.numel(), device=tensor.device, dtype=torch.float32)
            wave = torch.sin(steps * 12.9898 + 1.0) * size
            tensor.detach().copy_(wave.reshape(tensor.shape).to(tensor.dtype))

    return fill


def flags_of(tensors: Sequence[torch.Tensor]) -> list[Flags]:
    """Measure tensors; those without real values are left out."""
    meter = Meter()
    with torch.no_grad():
        slots = [meter.span(tensor).slot for tensor in tensors]
    meter.settle()
    return [flags for flags in (meter.flags[slot] for slot in slots) if flags is not None]


def first_bad(tensors: Sequence[torch.Tensor], *, zeros: bool) -> tuple[int, ...] | None:
    """Return the index of the first bad element in the first tensor that has one.

    A NaN comes before infinities, which may be a mask's.
    With `zeros` the elements are near zero, and the first tensor as a whole is bad.
    """
    for tensor in tensors:
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            continue
        if tensor.layout is not torch.strided or not tensor.numel():
            continue
        if zeros:
            return (0,) * tensor.dim()
        flat = tensor.detach().reshape(-1)
        if flat.dtype not in REDUCIBLE and not flat.dtype.is_complex:
            flat = flat.float()
        bad = torch.isnan(flat)
        if not bool(bad.any()):
            bad = ~torch.isfinite(flat)
        if bool(bad.any()):
            place = int(bad.to(torch.uint8).argmax())
            return tuple(
                int(each) for each in torch.unravel_index(torch.tensor(place), tensor.shape)
            )
    return None


def bad_rows(tensor: torch.Tensor) -> set[int]:
    """Return the indices along the first dimension at which a tensor is not finite."""
    if not tensor.dim():
        return set()
    finite = torch.isfinite(tensor).reshape(tensor.shape[0], -1).all(1)
    return {int(row) for row in (~finite).nonzero()}
