"""Numeric settings of the recorded process: set here while a replay runs, and put back."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from flightrec import environment
from replay.switches import set_flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flightrec.incident.reader import Incident

CAPABILITIES = ("DEFAULT", "AVX2", "AVX512")
"""Instruction sets that torch dispatches to on x86, the least first."""

_NEEDED = {
    "AVX2": {"avx2", "fma"},
    "AVX512": {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
}

MOST_THREADS = 1024
"""An incident that asks for more is not believed."""

AT_START = (
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_DYNAMIC",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "PYTHONHASHSEED",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Variables that change numbers and are read once, when a process starts."""

_VALUE = re.compile(r"[A-Za-z0-9_.,:+-]{1,64}")


class Recorded:
    """The environment of the recorded process, in the form of the manifest."""

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        """Take the manifest's `environment`."""
        self.environment = recorded
        self._flags: Mapping[str, Any] = recorded.get("flags") or {}

    @contextmanager
    def applied(self) -> Iterator[tuple[str, ...]]:
        """Set what can be set in this process; yields the names of flags that refused.

        Only what was on is switched on: deterministic algorithms fill new memory with NaN,
        which invents failures.
        """
        before, threads = environment.collect().flags, torch.get_num_threads()
        wanted = {name: value for name, value in self._flags.items() if value is not None}
        try:
            _use_threads((self.environment.get("threads") or {}).get("intra"))
            yield set_flags(wanted)
        finally:
            _use_threads(threads)
            set_flags({name: value for name, value in before.items() if value is not None})

    def differences(self, device: torch.device) -> list[str]:
        """Say what still differs while the settings are applied, as far as it changes numbers."""
        with self.applied():
            here = environment.collect().as_json()
        texts = []
        recorded_on = self.environment.get("devices") or []
        if recorded_on and device.type == "cpu":
            name = recorded_on[0].get("name") or recorded_on[0].get("type")
            texts.append(f"recorded on {name}, replayed on the CPU")
        return texts + [
            f"{found.name}: recorded {found.recorded}, here {found.here}"
            for found in environment.differences(self.environment, here)
            if found.numbers and _matters(found, device)
        ]


def _use_threads(count: Any) -> None:
    if isinstance(count, int) and 0 < count <= MOST_THREADS and count != torch.get_num_threads():
        torch.set_num_threads(count)


def reexec_environment(incident: Incident) -> dict[str, str] | None:
    """Return variables with which Python must be started anew to compute as the recorded did.

    They choose what a process fixes at its start: the instruction sets of ATen, oneDNN and MKL,
    threads, workspaces. None where nothing has to change. `unreachable` has what no variable
    brings back.
    """
    return variables_for(incident.manifest["environment"])


def variables_for(recorded: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what `reexec_environment` does, for an environment of a manifest."""
    wanted: dict[str, str] = {}
    known = recorded.get("variables") or {}
    for name in AT_START:
        value = known.get(name)
        if isinstance(value, str) and _VALUE.fullmatch(value) and os.environ.get(name) != value:
            wanted[name] = value
    intra = (recorded.get("threads") or {}).get("intra")
    if isinstance(intra, int) and 0 < intra <= MOST_THREADS and intra != torch.get_num_threads():
        wanted |= {"OMP_NUM_THREADS": str(intra), "MKL_NUM_THREADS": str(intra)}
    wanted |= _capability(recorded, chosen="ATEN_CPU_CAPABILITY" in known)
    return wanted or None


def unreachable(incident: Incident) -> list[str]:
    """Say in which way this machine cannot compute as the recorded one did, one line each."""
    recorded = incident.manifest["environment"]
    texts = []
    capability = (recorded.get("cpu") or {}).get("capability")
    mine = machine_capability()
    if capability in CAPABILITIES and _rank(capability) > _rank(mine):
        texts.append(f"this processor has no {capability}, only {mine}")
    if recorded.get("torch") not in (None, str(torch.__version__)):
        texts.append(f"recorded with torch {recorded['torch']}, this is {torch.__version__}")
    return texts


def _capability(recorded: Mapping[str, Any], *, chosen: bool) -> dict[str, str]:
    """Choose the recorded instruction sets, where this processor has them too.

    Where the recorded process had not chosen less than its processor offered, oneDNN and MKL
    were bound by the same processor.
    """
    capability = (recorded.get("cpu") or {}).get("capability")
    here = torch.backends.cpu.get_cpu_capability()
    if capability not in CAPABILITIES or capability == here:
        return {}
    if _rank(capability) > _rank(machine_capability()):
        return {}
    wanted = {"ATEN_CPU_CAPABILITY": capability.lower()}
    if not chosen and capability == "AVX2":
        wanted |= {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    return {name: value for name, value in wanted.items() if os.environ.get(name) != value}


@cache
def machine_capability() -> str:
    """Return the best of `CAPABILITIES` that this processor has.

    Asked of the processor, since torch believes ATEN_CPU_CAPABILITY even where that ends in an
    illegal instruction.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return torch.backends.cpu.get_cpu_capability()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    flags = set(found.group(1).split()) if found else set()
    having = [name for name in CAPABILITIES if _NEEDED.get(name, set()) <= flags]
    return having[-1]


def _rank(capability: str) -> int:
    return CAPABILITIES.index(capability) if capability in CAPABILITIES else -1


def _matters(found: environment.Difference, device: torch.device) -> bool:
    """Can this difference change numbers of a replay on `device`?"""
    part, _, rest = found.name.partition(".")
    on_cpu = device.type == "cpu"
    if part == "flags":
        return not (on_cpu and rest.partition(".")[0] in ("cuda", "cudnn"))
    if part == "devices":
        return not on_cpu and rest.rpartition(".")[2] in ("name", "capability")
    if part == "packages":
        return found.here is not None and found.recorded is not None
    if part == "build":
        return not on_cpu and rest in ("cuda", "hip")
    return found.name in ("torch", "cpu.model", "cpu.capability", "cpu.arch", "threads.intra")
