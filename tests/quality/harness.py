"""Take a case through record and capture, and through bisect in a process of its own.

Two cases are under way at a time, each in processes of one thread, while pytest waits for the
one it asks about.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASES = HERE / "cases"
SECONDS = 300
"""After this a process counts as hung."""


def names() -> list[str]:
    """Return all cases by name."""
    return sorted(path.stem for path in CASES.glob("c*.py"))


def truth(name: str) -> dict[str, Any]:
    """Read what is known about a case without running it."""
    for node in ast.parse((CASES / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TRUTH":
            assert isinstance(node.value, ast.Call)
            return {str(word.arg): ast.literal_eval(word.value) for word in node.value.keywords}
    raise AssertionError(f"{name} has no TRUTH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case did, and what was said about its first incident."""

    plain: dict[str, Any]
    """Losses, error and incidents of the run without a recorder."""

    recorded: dict[str, Any]
    """The same with one."""

    exit_code: int | None
    """Of `flightrec bisect`; None where there was no incident."""

    verdict: dict[str, Any]
    """What it printed; empty where there was no incident."""

    words: str
    """Standard error of both processes, to be shown where a test fails."""


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which the cases are importable and the key is a test's own."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(CASES))),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "FLIGHTREC_STRICT": "1",
        "OMP_NUM_THREADS": "1",
    }


def start(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own and wait for it."""
    return subprocess.run(
        [sys.executable, *words],
        env=environment(folder),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def examine(name: str, folder: Path) -> Outcome:
    """Record one case under `folder`, then bisect its first incident in another process."""
    store = str(folder / name)
    recording = start(folder, str(HERE / "record_case.py"), name, store)
    assert recording.returncode == 0, recording.stderr
    ran = json.loads(recording.stdout.splitlines()[-1])
    if not ran["recorded"]["incidents"]:
        return Outcome(**ran, exit_code=None, verdict={}, words=recording.stderr)
    first = ran["recorded"]["incidents"][0]
    bisect = start(folder, "-m", "flightrec", "bisect", first, "--store", store, "--json")
    return Outcome(
        **ran,
        exit_code=bisect.returncode,
        verdict=json.loads(bisect.stdout) if bisect.stdout.strip() else {},
        words=recording.stderr + bisect.stderr,
    )


class Lab:
    """Examines cases ahead of the tests that ask for them."""

    def __init__(self, folder: Path, wanted: Iterable[str]) -> None:
        """Start on the `wanted` cases, in this order."""
        self._pool = ThreadPoolExecutor(max_workers=2)
        self._under_way: dict[str, Future[Outcome]] = {
            name: self._pool.submit(examine, name, folder) for name in wanted
        }

    def outcome(self, name: str) -> Outcome:
        """Return what became of a case, waiting for it where needed."""
        return self._under_way[name].result()

    def close(self) -> None:
        """Drop what nobody waits for."""
        self._pool.shutdown(cancel_futures=True)
