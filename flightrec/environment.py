"""What can change numbers: versions, processor, threads, devices, flags, variables, code."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flightrec.types import Json

PACKAGES = (
    "accelerate",
    "apex",
    "bitsandbytes",
    "deepspeed",
    "diffusers",
    "flash_attn",
    "lightning",
    "numba",
    "numpy",
    "peft",
    "pytorch_lightning",
    "scipy",
    "sklearn",
    "timm",
    "torchao",
    "torchaudio",
    "torchvision",
    "transformers",
    "triton",
    "xformers",
)
"""Packages whose version is recorded where they are imported already."""

VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "KMP_AFFINITY",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_DYNAMIC",
    "OMP_NUM_THREADS",
    "OMP_SCHEDULE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_MPS_FAST_MATH",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_CUDNN_V8_API_DISABLED",
    "VECLIB_MAXIMUM_THREADS",
    "WORLD_SIZE",
)
"""Environment variables that can change numbers; no other is ever read."""

HARMLESS = ("machine", "platform", "python")
"""Parts that differ between machines without changing a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One machine and process as far as it can change numbers; JSON values throughout."""

    machine: str
    """Name of the machine, to count incidents by."""

    platform: str
    python: str
    torch: str
    build: Mapping[str, Json]
    """Versions torch was built with or found: git, cuda, hip, cudnn."""

    packages: Mapping[str, str]
    cpu: Mapping[str, Json]
    """`model`, `capability` (instruction set that torch dispatches to), `cores`, `arch`, `libc`."""

    threads: Mapping[str, Json]
    """`intra` and `inter` of torch, and the variables that set threads, null where unset."""

    devices: tuple[Mapping[str, Json], ...]
    """Accelerators in use, `type`, `index`, `name` and more; empty on a CPU."""

    flags: Mapping[str, Json]
    """Switches of torch by dotted name; null where this build has no such switch."""

    variables: Mapping[str, str]
    """Those of `VARIABLES` that are set."""

    def as_json(self) -> dict[str, Json]:
        """Return it as the manifest holds it."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One entry in which two environments differ."""

    name: str
    """Dotted: `threads.intra`, `flags.cudnn.benchmark`."""

    recorded: Json
    here: Json
    numbers: bool
    """Can it change numbers?"""


def collect() -> Environment:
    """Look at this process; takes a few milliseconds, starts no device and no other process."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return Environment(
        machine=platform.node(),
        platform=f"{platform.system()}-{platform.release()}-{platform.machine()}",
        python=platform.python_version(),
        torch=str(torch.__version__),
        build=_build(),
        packages=_packages(),
        cpu={
            "model": _cpu_model(),
            "capability": _read("backends.cpu.get_cpu_capability"),
            "cores": os.cpu_count(),
            "arch": platform.machine(),
            "libc": "-".join(platform.libc_ver()) if sys.platform == "linux" else "",
        },
        threads={
            "intra": torch.get_num_threads(),
            "inter": torch.get_num_interop_threads(),
            **{name: os.environ.get(name) for name in names},
        },
        devices=tuple(_devices()),
        flags={name: read() for name, read in FLAGS.items()},
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


def differences(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Compare two environments in their JSON form, entry by entry, sorted by name.

    An entry that one side does not have counts as null: an older build did not record it, or
    has no such switch.
    """
    left, right = dict(_flat(recorded)), dict(_flat(here))
    return tuple(
        Difference(
            name=name,
            recorded=left.get(name),
            here=right.get(name),
            numbers=name.partition(".")[0] not in HARMLESS,
        )
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name)
    )


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield from _flat({str(n): item for n, item in enumerate(value)}, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _plain(value: Any) -> Json:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return dict(value) if not isinstance(value, str) else value


SWITCHES = {
    "deterministic": "are_deterministic_algorithms_enabled",
    "deterministic_warn_only": "is_deterministic_algorithms_warn_only_enabled",
    "fill_uninitialized_memory": "utils.deterministic.fill_uninitialized_memory",
    "default_dtype": "get_default_dtype",
    "float32_matmul_precision": "get_float32_matmul_precision",
    "anomaly": "is_anomaly_enabled",
    "autocast.cache": "is_autocast_cache_enabled",
    "cuda.matmul.fp16_reduction": "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.bf16_reduction": "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.fp16_accumulation": "backends.cuda.matmul.allow_fp16_accumulation",
    "cuda.linalg_library": "_C._get_linalg_preferred_backend",
    "cuda.blas_library": "_C._get_blas_preferred_backend",
    "cudnn.enabled": "backends.cudnn.enabled",
    "cudnn.benchmark": "backends.cudnn.benchmark",
    "cudnn.benchmark_limit": "backends.cudnn.benchmark_limit",
    "cudnn.deterministic": "backends.cudnn.deterministic",
    "sdp.flash": "backends.cuda.flash_sdp_enabled",
    "sdp.mem_efficient": "backends.cuda.mem_efficient_sdp_enabled",
    "sdp.math": "backends.cuda.math_sdp_enabled",
    "sdp.cudnn": "backends.cuda.cudnn_sdp_enabled",
    "sdp.math_reduced": "backends.cuda.fp16_bf16_reduction_math_sdp_allowed",
    "mkldnn.enabled": "_C._get_mkldnn_enabled",
    "mkldnn.deterministic": "backends.mkldnn.deterministic",
    "mkldnn.matmul.fp32": "backends.mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32": "backends.mkldnn.conv.fp32_precision",
    "nnpack.enabled": "_C._get_nnpack_enabled",
    "opt_einsum.enabled": "backends.opt_einsum.enabled",
    "opt_einsum.strategy": "backends.opt_einsum.strategy",
}
"""Numeric switches: name -> where below `torch` it is read; functions are called."""

TF32 = {
    "cuda.matmul.tf32": ("backends.cuda.matmul.fp32_precision", "backends.cuda.matmul.allow_tf32"),
    "cudnn.conv.tf32": ("backends.cudnn.conv.fp32_precision", "backends.cudnn.allow_tf32"),
    "cudnn.rnn.tf32": ("backends.cudnn.rnn.fp32_precision", "backends.cudnn.allow_tf32"),
}
"""Switches with a new name, a word, since torch 2.9, and an old one, a bool, that then may warn
or raise: the old name is only read where the new one does not exist."""


def _read(path: str) -> Json:
    """Return what lies at a dotted name below `torch`; null where this build has none."""
    value: Any = torch
    try:
        for part in path.split("."):
            value = getattr(value, part)
        value = value() if callable(value) else value
    except (AttributeError, RuntimeError, AssertionError):
        return None  # the switch of another build, or old and new names used together
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value).rpartition(".")[2]


def _tf32(path: str, legacy: str) -> Json:
    precision = _read(path)
    return _read(legacy) if precision is None else precision


def _autocast(device: str) -> Json:
    return str(torch.get_autocast_dtype(device)).rpartition(".")[2]


def _flushes_denormals() -> Json:
    """Does this thread set numbers below the smallest normal one to zero? No function tells."""
    return sys.float_info.min / 2 == 0.0


FLAGS: dict[str, Callable[[], Json]] = {
    **{name: partial(_read, path) for name, path in SWITCHES.items()},
    **{name: partial(_tf32, *paths) for name, paths in TF32.items()},
    "autocast.cpu": partial(_autocast, "cpu"),
    "autocast.cuda": partial(_autocast, "cuda"),
    "flush_denormal": _flushes_denormals,
}
"""Every recorded switch by name, and how to read it; null where this build has none."""


def _build() -> dict[str, Json]:
    return {
        "git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _read("backends.cudnn.version") if _read("cuda.is_initialized") else None,
        "mkl": _read("backends.mkl.is_available"),
    }


def _packages() -> dict[str, str]:
    """Return versions of packages that are imported; importing one to ask would be a surprise."""
    found = {}
    for name in PACKAGES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found


def _cpu_model() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "Model", "cpu model"):
                    return value.strip()
    except OSError:
        return platform.processor()
    return platform.processor()


def _devices() -> Iterator[dict[str, Json]]:
    """Describe accelerators that the run uses already; asking others would start them."""
    if _read("cuda.is_initialized"):
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            yield {
                "type": "cuda",
                "index": index,
                "name": about.name,
                "capability": f"{about.major}.{about.minor}",
                "bytes": about.total_memory,
                "processors": about.multi_processor_count,
                "driver": _read("_C._cuda_getDriverVersion"),
            }
    if torch.backends.mps.is_available():
        yield {"type": "mps", "index": 0, "name": _cpu_model()}
    if _read("xpu.is_initialized"):
        for index in range(torch.xpu.device_count()):
            yield {"type": "xpu", "index": index, "name": torch.xpu.get_device_name(index)}
