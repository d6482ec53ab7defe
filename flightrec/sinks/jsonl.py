"""Writes the numbers of each step as one line of JSON, readable while the run goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flightrec.errors import StoreError, UsageError
from flightrec.tree import number
from flightrec.types import Stat

if TYPE_CHECKING:
    import os
    from typing import TextIO

    from flightrec.types import Json, StepRecord

LIMIT_BYTES = 2**30


class JsonLines:
    """Appends to a file: `sinks=["jsonl:steps.jsonl"]`, or `JsonLines(path, stats=True)`.

    A line has `step`, `loss`, `grad_norm`, `lr`, `updated`, `seconds`, `times` and `scalars`;
    with `stats` also `sites`: text form of a site -> statistic -> value, where measured. Numbers
    that are not finite are `{"$": "float", "v": "nan"}`. The last line is `{"closed": true,
    "written": n, "dropped": n}`.
    """

    def __init__(
        self, path: str | os.PathLike[str] = "", *, stats: bool = False, limit: int = LIMIT_BYTES
    ) -> None:
        """Append to `path`, at most `limit` bytes; the folder must exist.

        Raises `UsageError` without a path, and `StoreError` where it cannot be written.
        """
        if not str(path):
            raise UsageError("the sink jsonl needs a path: sinks=['jsonl:steps.jsonl']")
        if limit < 1:
            raise UsageError(f"jsonl.limit must be at least 1, got {limit!r}")
        self._stats = stats
        self._room = limit
        self.written = 0
        self.dropped = 0
        try:
            file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - open until close()
        except OSError as refusal:
            raise StoreError(f"cannot write {path!s}: {refusal.strerror}") from refusal
        self._file: TextIO | None = file

    def write(self, record: StepRecord) -> None:
        """Append one line and flush it; over the limit it is counted instead."""
        line = json.dumps(self._line(record), allow_nan=False, separators=(",", ":")) + "\n"
        if self._file is None or len(line) > self._room:
            self.dropped += 1
            return
        self._file.write(line)
        self._file.flush()
        self._room -= len(line)
        self.written += 1

    def close(self) -> None:
        """Say how many lines were written and dropped, and close the file."""
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            last = {"closed": True, "written": self.written, "dropped": self.dropped}
            file.write(json.dumps(last, separators=(",", ":")) + "\n")

    def _line(self, record: StepRecord) -> dict[str, Json]:
        line: dict[str, Json] = {
            "step": record.step,
            "loss": _maybe(record.loss),
            "grad_norm": _maybe(record.grad_norm),
            "lr": _maybe(record.lr),
            "updated": record.updated,
            "seconds": number(record.seconds),
            "times": {name: number(value) for name, value in record.times.items()},
            "scalars": {name: number(value) for name, value in record.scalars.items()},
        }
        if self._stats:
            line["sites"] = {
                str(site): _measured(row)
                for site, row in zip(record.sites, record.stats_SK, strict=True)
            }
        return line


def _maybe(value: float | None) -> Json:
    return None if value is None else number(value)


def _measured(row: Any) -> dict[str, Json]:
    return {stat.name.lower(): number(row[stat]) for stat in Stat if not math.isnan(row[stat])}


Sink = JsonLines
