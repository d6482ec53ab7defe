"""Measure and print: `python -m benchmarks [--quick] [--only NAME] [--json] [--device cuda]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from benchmarks import bisecting, capturing, overhead, report
from benchmarks.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS = 15
QUICK_ROUNDS = 3


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds")
    parser.add_argument("--rounds", type=int, help=f"rounds of each workload, else {ROUNDS}")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="workloads whose name begins so, or capture, or bisect; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser.parse_args()


def machine(device: str) -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }


def measure(chosen: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Take all measurements that were asked for."""
    rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS)
    found: dict[str, Any] = {"machine": machine(chosen.device)}
    with console.status("measuring") as status:
        found["overhead"] = [
            dataclasses.asdict(row)
            for workload in WORKLOADS
            if wanted(workload.name, chosen.only)
            for row in overhead.measure(workload, chosen.device, rounds, status.update)
        ]
        if wanted("capture", chosen.only):
            status.update("capture")
            found["capture"] = dataclasses.asdict(capturing.measure(rounds))
        if wanted("bisect", chosen.only):
            status.update("bisect")
            found["bisect"] = dataclasses.asdict(bisecting.measure(rounds))
    return found


def wanted(name: str, only: Sequence[str]) -> bool:
    """Was this measurement asked for?"""
    return not only or any(name.startswith(prefix) for prefix in only)


def main() -> int:
    """Measure, then print."""
    chosen = options()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("skipped: no CUDA device here", file=sys.stderr)
        if chosen.json:
            print(json.dumps({"skipped": "no CUDA device here"}))
        return 0
    torch.set_num_threads(1)
    logging.getLogger("flightrec").setLevel(logging.ERROR)
    found = measure(chosen, Console(stderr=True))
    if chosen.json:
        print(json.dumps(found, indent=1))
    else:
        report.show(found, Console(width=None if sys.stdout.isatty() else 110))
    return 0


if __name__ == "__main__":
    sys.exit(main())
