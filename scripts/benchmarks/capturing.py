"""How fast and how small incidents are written, beside zstd alone; how long training waits."""

from __future__ import annotations

import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import zstandard

from benchmarks.overhead import Bench
from benchmarks.pairs import Ratio, ratio
from benchmarks.workloads import WORKLOADS
from flightrec import FlightRecorder, open_store
from flightrec.incident.writer import write
from flightrec.types import Capture, StorageData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CHUNK_BYTES = 4 * 2**20
LEVEL = 3
THREADS = 1
STEPS = 9
CAPTURED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Capturing:
    """What one incident of the transformer with 33M parameters costs."""

    raw_megabytes: float
    """Bytes of all storages, 10**6."""

    file_megabytes: float
    """Bytes of the incident, 10**6."""

    size_over_zstd: float
    """The incident's size over that of `zstd -3` on the shuffled bytes; goal 1.02."""

    megabytes_per_second: float
    """Raw bytes over the time of writing, one thread, fsync included."""

    speed_over_zstd: Ratio
    """Speed of shuffle, zstd and hash without HDF5 = 1; goal 0.8."""

    steps_blocked: float
    """Time that training lost around the capture, in steps; goal 1."""


def measure(rounds: int) -> Capturing:
    """Record one incident, then write it again and again."""
    with tempfile.TemporaryDirectory() as folder:
        blocked = _record(Path(folder) / "store")
        capture = _captured(Path(folder) / "store")
        writing, alone, sizes = [], [], (0, 0)
        for number in range(rounds):
            target = Path(folder) / str(number)
            target.mkdir()
            started = time.perf_counter()
            path = write(capture, target, key=None, threads=THREADS)
            written = time.perf_counter()
            least = _zstd_alone(capture.storages)
            writing.append(written - started)
            alone.append(time.perf_counter() - written)
            sizes = path.stat().st_size, least
            path.unlink()
    raw = sum(len(storage.data) for storage in capture.storages)
    return Capturing(
        raw_megabytes=raw / 1e6,
        file_megabytes=sizes[0] / 1e6,
        size_over_zstd=sizes[0] / sizes[1],
        megabytes_per_second=raw / 1e6 / statistics.median(writing),
        speed_over_zstd=ratio(alone, writing),
        steps_blocked=blocked,
    )


def _record(store: Path) -> float:
    """Train, capture one step by hand, and return how many steps of time that took."""
    workload = next(each for each in WORKLOADS if each.name == "transformer-33M-2x128")
    bench = Bench.of(workload, "cpu")
    seconds: list[float] = []
    with FlightRecorder(str(store), model=bench.model, optimizer=bench.optimizer) as recorder:
        for number in range(STEPS):
            if number == CAPTURED:
                recorder.capture("benchmark")
            started = time.perf_counter()
            bench.train(recorder, 1)
            seconds.append(time.perf_counter() - started)
    usual = statistics.median(seconds[1:CAPTURED])
    return (sum(seconds[CAPTURED:]) - usual * (STEPS - CAPTURED)) / usual


def _captured(store: Path) -> Capture:
    """Return the incident in `store` as it was before it was written."""
    opened = open_store(str(store))
    with closing(opened.open(opened.ids()[0])) as incident:
        sites, stats_TSK = incident.stats()
        manifest = {
            name: value
            for name, value in incident.manifest.items()
            if name not in ("storages", "tensors")
        }
        return Capture(
            id=incident.id,
            manifest=manifest,
            storages=tuple(
                StorageData(data=incident.storage(number), dtype=entry["dtype"])
                for number, entry in enumerate(incident.manifest["storages"])
            ),
            tensors=tuple(incident.tensors),
            sites=sites,
            stats_TSK=stats_TSK,
        )


def _zstd_alone(storages: Sequence[StorageData]) -> int:
    """Shuffle, compress and hash every different storage once; return the compressed bytes."""
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    seen: set[bytes] = set()
    total = 0
    with ThreadPoolExecutor(THREADS) as pool:
        for storage in storages:
            content = pool.submit(blake2b, storage.data.data, digest_size=16).result().digest()
            if content in seen:
                continue
            seen.add(content)
            width = torch.empty((), dtype=getattr(torch, storage.dtype)).element_size()
            for start in range(0, len(storage.data), CHUNK_BYTES):
                part = storage.data[start : start + CHUNK_BYTES]
                total += pool.submit(_shuffled, part, width, compressor).result()
    return total


def _shuffled(part: NDArray[np.uint8], width: int, compressor: zstandard.ZstdCompressor) -> int:
    """Return the compressed size of a part whose bytes are sorted by their place in a number."""
    return len(compressor.compress(np.ascontiguousarray(part.reshape(-1, width).T).data))
