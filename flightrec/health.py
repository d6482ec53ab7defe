"""What is wrong with this installation, a store, and the incidents in it?"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np

from flightrec.errors import FlightrecError, StoreError
from flightrec.incident import codec, keys
from flightrec.incident.reader import open_incident

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from flightrec.stores import Store

NEEDED = ("torch", "numpy", "h5py", "zstandard", "duckdb", "pyarrow", "click", "rich")
"""Packages without which something here does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    area: str
    """installation, store or incident."""

    name: str
    """What it is."""

    found: str
    """What was found, in one line."""

    ok: bool
    """Is it as it should be?"""


def check_installation() -> Iterator[Check]:
    """Look at versions, at the filters of the file format, and at the user's key."""
    area = "installation"
    yield Check(area=area, name="python", found=sys.version.split()[0], ok=True)
    for name in NEEDED:
        try:
            yield Check(area=area, name=name, found=metadata.version(name), ok=True)
        except metadata.PackageNotFoundError:
            yield Check(area=area, name=name, found=f"not installed: pip install {name}", ok=False)
    yield Check(area=area, name="HDF5", found=h5py.version.hdf5_version, ok=True)
    yield _filters()
    yield _key()


def check_store(store: Store) -> Iterator[Check]:
    """Look at permissions, at leftovers, and whether the catalog and the files agree."""
    problems = store.problems()
    for problem in problems:
        yield Check(area="store", name=store.url, found=problem, ok=False)
    if not problems:
        count = len(store.ids())
        incidents = "1 incident" if count == 1 else f"{count} incidents"
        yield Check(area="store", name=store.url, found=f"{incidents}, all in order", ok=True)


def check_incidents(paths: Iterable[Path]) -> Iterator[Check]:
    """Read every byte of these incidents and compare it with its hash."""
    for path in paths:
        try:
            with open_incident(path) as incident:
                problems = incident.verify()
        except FlightrecError as fault:
            problems = [str(fault)]
        for problem in problems:
            yield Check(area="incident", name=path.stem, found=problem, ok=False)
        if not problems:
            yield Check(area="incident", name=path.stem, found="every hash is right", ok=True)


def _filters() -> Check:
    """Send numbers through shuffle and zstd and back, as a tensor would go."""
    data = np.arange(256, dtype="<u4").view(np.uint8)
    back = np.zeros_like(data)
    frame = codec.encode(data, 4, len(data))
    codec.unshuffle(codec.decode(frame, codec.pipeline(4), 0, 4, len(data)), back)
    same = bool((data == back).all())
    found = "work" if same else "give back other numbers: reinstall zstandard and numpy"
    return Check(area="installation", name="shuffle and zstd", found=found, ok=same)


def _key() -> Check:
    try:
        key = keys.user_key()
    except StoreError as fault:
        return Check(area="installation", name="key", found=str(fault), ok=False)
    found = "none yet, the first recording makes one" if key is None else str(keys.key_path())
    return Check(area="installation", name="key", found=found, ok=True)
