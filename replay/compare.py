"""How far apart two tensors are, from their bits alone: equal, close or diverged, and ULPs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from flightrec.types import Fidelity

    Words = NDArray[np.unsignedinteger]

FARTHEST = 2**63 - 1
"""ULPs given where one side is NaN or infinite and the other is not, or shapes differ."""

RANK: dict[Fidelity, int] = {"bit_exact": 0, "close": 1, "diverged": 2}


@dataclass(frozen=True, slots=True)
class _Format:
    """How a floating type spreads its bits."""

    exponent: int
    mantissa: int
    bias: int
    nans: str = "ieee"
    """ieee; ones (NaN is all ones, no infinity); negative_zero (NaN where -0 would be)."""


_FORMATS = {
    "float64": _Format(11, 52, 1023),
    "float32": _Format(8, 23, 127),
    "float16": _Format(5, 10, 15),
    "bfloat16": _Format(8, 7, 127),
    "float8_e5m2": _Format(5, 2, 15),
    "float8_e4m3fn": _Format(4, 3, 7, "ones"),
    "float8_e5m2fnuz": _Format(5, 2, 16, "negative_zero"),
    "float8_e4m3fnuz": _Format(4, 3, 8, "negative_zero"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far a replayed tensor is from the recorded one."""

    fidelity: Fidelity
    max_ulp: int = 0
    """Largest distance of two elements, counted in representable numbers between them.

    -0 and 0 are one apart, so 0 means that all bits are equal (any NaN equals any NaN).
    """


EXACT = Distance(fidelity="bit_exact")
APART = Distance(fidelity="diverged", max_ulp=FARTHEST)


def distance(recorded: Words, replayed: Words, dtype: str) -> Distance:
    """Compare two flat arrays of raw bits of elements of `dtype` (its name in torch).

    Close means that no element is off by more than sqrt(eps) of the largest recorded
    magnitude: half of the digits of the type agree (3e-4 for float32, 0.09 for bfloat16).
    Rounding in another order of summation stays far below (1e-6 to 1e-5 in float32, as
    `torch.testing` assumes too), another dropout mask or another branch far above. The scale
    is the tensor's and not the element's, since a sum that cancels keeps few digits of its
    own. Types that are not floating are equal or diverged.
    """
    if recorded.shape != replayed.shape:
        return APART
    form = _FORMATS.get(dtype)
    differs = recorded != replayed
    if form is None:
        return _whole_numbers(recorded, replayed) if differs.any() else EXACT
    differs &= ~(_is_nan(recorded, form) & _is_nan(replayed, form))
    if not differs.any():
        return EXACT
    left, right = recorded[differs], replayed[differs]
    if not (_is_finite(left, form) & _is_finite(right, form)).all():
        return APART
    ulps = _steps_between(left, right, form)
    error = np.abs(_values(left, form) - _values(right, form)).max()
    finite = recorded[_is_finite(recorded, form)]
    scale = np.abs(_values(finite, form)).max(initial=0.0)
    limit = 2.0 ** (-form.mantissa / 2) * scale
    return Distance(fidelity="close" if error <= limit else "diverged", max_ulp=ulps)


def worst(fidelities: Iterable[Fidelity]) -> Fidelity:
    """Return the worst of several, bit_exact for none."""
    return max(fidelities, key=RANK.__getitem__, default="bit_exact")


def is_nonfinite(words: Words, dtype: str) -> NDArray[np.bool_]:
    """Tell for each element whether it is NaN or infinite; never for whole numbers."""
    form = _FORMATS.get(dtype)
    if form is None:
        return np.zeros(words.shape, dtype=bool)
    return ~_is_finite(words, form)


def _whole_numbers(left: Words, right: Words) -> Distance:
    apart = int((np.maximum(left, right) - np.minimum(left, right)).max())
    return Distance(fidelity="diverged", max_ulp=min(apart, FARTHEST))


def _magnitude(words: Words, form: _Format) -> Words:
    mask = words.dtype.type((1 << (form.exponent + form.mantissa)) - 1)
    return words & mask


def _is_nan(words: Words, form: _Format) -> NDArray[np.bool_]:
    kind = words.dtype.type
    if form.nans == "negative_zero":
        return np.equal(words, kind(1 << (form.exponent + form.mantissa)))
    top = ((1 << form.exponent) - 1) << form.mantissa
    if form.nans == "ones":
        return np.equal(_magnitude(words, form), kind(top | ((1 << form.mantissa) - 1)))
    return np.greater(_magnitude(words, form), kind(top))


def _is_finite(words: Words, form: _Format) -> NDArray[np.bool_]:
    if form.nans == "ieee":
        top = ((1 << form.exponent) - 1) << form.mantissa
        return _magnitude(words, form) < words.dtype.type(top)
    return ~_is_nan(words, form)


def _steps_between(left: Words, right: Words, form: _Format) -> int:
    """Count representable numbers between elements, on an axis that runs through both zeros."""
    sign = left.dtype.type(1 << (form.exponent + form.mantissa))
    one, other = (np.where(words & sign, ~words, words | sign) for words in (left, right))
    return min(int((np.maximum(one, other) - np.minimum(one, other)).max()), FARTHEST)


def _values(words: Words, form: _Format) -> NDArray[np.float64]:
    """Read finite elements as float64."""
    if form.mantissa in (52, 23, 10):
        floats: NDArray[np.floating] = words.view(f"float{words.dtype.itemsize * 8}")
        return floats.astype(np.float64)
    if form.mantissa == 7:
        return (words.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    magnitude = _magnitude(words, form).astype(np.int64)
    exponent, mantissa = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    normal = exponent > 0
    fraction = mantissa / (1 << form.mantissa) + normal
    value = np.ldexp(fraction, np.maximum(exponent, 1) - form.bias)
    signed: NDArray[np.float64] = np.where(words >> (form.exponent + form.mantissa), -value, value)
    return signed
