"""How each numeric switch of torch is set; the names are those of an `Environment`'s flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flightrec import environment
from flightrec.tree.raw import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_REFUSALS = (AttributeError, RuntimeError, TypeError, ValueError, LookupError, AssertionError)
"""How torch says that this build has no such switch, or not this value."""


def set_flags(wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Set the flags that are not as wanted; return those that refused.

    Done twice, since a few are names for parts of others.
    """
    refused: tuple[str, ...] = ()
    for _ in range(2):
        present = environment.collect().flags
        wrong = [
            name
            for name in SETTERS
            if name in wanted and present.get(name) not in (None, wanted[name])
        ]
        refused = tuple(name for name in wrong if not _accepts(name, wanted[name]))
        if len(refused) == len(wrong):
            break
    return refused


def _accepts(name: str, value: Any) -> bool:
    try:
        SETTERS[name](value)
    except _REFUSALS:
        return False
    return True


def _switch(put: Callable[[bool], object]) -> Callable[[Any], None]:
    """Take yes or no, and nothing else."""

    def setter(value: Any) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"a switch takes yes or no, got {value!r}")
        put(value)

    return setter


def _word(put: Callable[[str], object], *words: str) -> Callable[[Any], None]:
    """Take one of some words; torch 2.13 crashes on others instead of refusing them."""

    def setter(value: Any) -> None:
        if not isinstance(value, str) or value.lower() not in words:
            raise ValueError(f"one of {words}, got {value!r}")
        put(value)

    return setter


def _at(path: str) -> Callable[[Any], None]:
    """Return a setter for an attribute by its dotted path below `torch.backends`."""
    *owners, name = path.split(".")

    def put(value: Any) -> None:
        target: Any = torch.backends
        for owner in owners:
            target = getattr(target, owner)
        setattr(target, name, value)

    return put


def _tf32(path: str, legacy: str) -> Callable[[Any], None]:
    """Take a word for the new name of a TF32 switch, yes or no for its old one."""
    word = _word(_at(f"{path}.fp32_precision"), *_PRECISIONS)
    switch = _switch(_at(legacy))
    return lambda value: (switch if isinstance(value, bool) else word)(value)


def _dtype(put: Callable[[torch.dtype], object]) -> Callable[[Any], None]:
    return lambda value: _ignore(put(DTYPES[value]))


def _ignore(_: object) -> None:
    """Drop what a setter of torch returns."""


def _deterministic(value: bool) -> None:  # noqa: FBT001  (a setter takes its value)
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(value, warn_only=warn_only)


def _warn_only(value: bool) -> None:  # noqa: FBT001  (a setter takes its value)
    on = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(on, warn_only=value)


def _anomaly(value: bool) -> None:  # noqa: FBT001  (a setter takes its value)
    torch.set_anomaly_enabled(value, torch.is_anomaly_check_nan_enabled())


def _linalg(value: str) -> None:
    torch.backends.cuda.preferred_linalg_library(value.lower())


def _blas(value: str) -> None:
    torch.backends.cuda.preferred_blas_library(value.lower())


_PRECISIONS = ("none", "ieee", "tf32", "bf16")

SETTERS: dict[str, Callable[[Any], None]] = {
    "deterministic": _switch(_deterministic),
    "deterministic_warn_only": _switch(_warn_only),
    "fill_uninitialized_memory": _switch(
        lambda value: setattr(torch.utils.deterministic, "fill_uninitialized_memory", value)
    ),
    "flush_denormal": _switch(torch.set_flush_denormal),
    "default_dtype": _dtype(torch.set_default_dtype),
    "float32_matmul_precision": _word(
        torch.set_float32_matmul_precision, "highest", "high", "medium"
    ),
    "anomaly": _switch(_anomaly),
    "autocast.cpu": _dtype(lambda dtype: torch.set_autocast_dtype("cpu", dtype)),
    "autocast.cuda": _dtype(lambda dtype: torch.set_autocast_dtype("cuda", dtype)),
    "autocast.cache": _switch(torch.set_autocast_cache_enabled),
    "cuda.matmul.tf32": _tf32("cuda.matmul", "cuda.matmul.allow_tf32"),
    "cuda.matmul.fp16_reduction": _switch(
        _at("cuda.matmul.allow_fp16_reduced_precision_reduction")
    ),
    "cuda.matmul.bf16_reduction": _switch(
        _at("cuda.matmul.allow_bf16_reduced_precision_reduction")
    ),
    "cuda.matmul.fp16_accumulation": _switch(_at("cuda.matmul.allow_fp16_accumulation")),
    "cuda.linalg_library": _word(_linalg, "default", "cusolver", "magma"),
    "cuda.blas_library": _word(_blas, "default", "cublas", "cublaslt", "ck"),
    "cudnn.enabled": _switch(_at("cudnn.enabled")),
    "cudnn.benchmark": _switch(_at("cudnn.benchmark")),
    "cudnn.benchmark_limit": _at("cudnn.benchmark_limit"),
    "cudnn.deterministic": _switch(_at("cudnn.deterministic")),
    "cudnn.conv.tf32": _tf32("cudnn.conv", "cudnn.allow_tf32"),
    "cudnn.rnn.tf32": _tf32("cudnn.rnn", "cudnn.allow_tf32"),
    "sdp.flash": _switch(torch.backends.cuda.enable_flash_sdp),
    "sdp.mem_efficient": _switch(torch.backends.cuda.enable_mem_efficient_sdp),
    "sdp.math": _switch(torch.backends.cuda.enable_math_sdp),
    "sdp.cudnn": _switch(torch.backends.cuda.enable_cudnn_sdp),
    "sdp.math_reduced": _switch(torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp),
    "mkldnn.enabled": _switch(torch._C._set_mkldnn_enabled),
    "mkldnn.deterministic": _switch(_at("mkldnn.deterministic")),
    "mkldnn.matmul.fp32": _word(_at("mkldnn.matmul.fp32_precision"), *_PRECISIONS),
    "mkldnn.conv.fp32": _word(_at("mkldnn.conv.fp32_precision"), *_PRECISIONS),
    "nnpack.enabled": _switch(torch._C._set_nnpack_enabled),
    "opt_einsum.enabled": _switch(_at("opt_einsum.enabled")),
    "opt_einsum.strategy": _word(
        _at("opt_einsum.strategy"), "auto", "auto-hq", "greedy", "optimal", "branch-2"
    ),
}
"""How the flags of an `Environment` are set; what stands for several others comes first."""
