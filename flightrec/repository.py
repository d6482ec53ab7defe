"""Which version of the user's code runs: commit and uncommitted changes, bounded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flightrec.types import Json

SECONDS = 2.0
"""Time for all questions to git together."""

QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
"""Variables under which git writes nothing into the repository, asks nobody, pages nothing."""

MISLEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables of a hook that started the run, which would point git elsewhere."""

DIFF = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short")
UNTRACKED = ("ls-files", "--others", "--exclude-standard", "--full-name", "--", ":/")
CONFIGURED = ("core.fsmonitor=false", "core.quotePath=false", "diff.autoRefreshIndex=false")


@dataclass(frozen=True, slots=True)
class Answer:
    """What git said."""

    text: str
    complete: bool
    """False where it was cut off by bytes or by time."""

    ok: bool
    """Did git succeed? True as well where it was cut off."""


def collect_code(*, diff_bytes: int, seconds: float = SECONDS) -> dict[str, Json] | None:
    """Return commit and diff of the repository that holds the running script.

    None without git or a repository. `repository` is the script's folder inside it, `.` for its
    root; `diff` is against the commit, at most `diff_bytes` bytes of UTF-8, followed by the
    names of untracked files as far as they fit; `diff_truncated` says that something is
    missing, by size or by time.
    """
    until = time.monotonic() + seconds
    folder = _script_folder()
    place = _ask(folder, ("rev-parse", "--is-inside-work-tree", "--show-prefix"), 4096, until)
    lines = place.text.splitlines()
    if not place.ok or lines[:1] != ["true"]:
        return None
    commit = _ask(folder, ("rev-parse", "--verify", "--quiet", "HEAD"), 256, until)
    diff = _ask(folder, DIFF, diff_bytes, until)
    changes = _without_touched(diff.text)
    rest = diff_bytes - len(changes.encode())
    names = _ask(folder, UNTRACKED, max(rest, 0), until)
    listed = "".join(f"Untracked: {name}\n" for name in names.text.splitlines())
    both = f"{changes}{listed}".encode()
    return {
        "repository": "/".join(lines[1:]).rstrip("/") or ".",
        "commit": commit.text.strip() or None,
        "dirty": bool(changes),
        "diff": both[:diff_bytes].decode(errors="ignore"),
        "diff_truncated": len(both) > diff_bytes or not (diff.complete and names.complete),
    }


def _without_touched(diff: str) -> str:
    """Drop files that were only touched: a git that must not refresh its index lists them bare."""
    return re.sub(r"^diff --git .*\n(?=diff --git |\Z)", "", diff, flags=re.MULTILINE)


def _script_folder() -> Path:
    """Return the folder of the program that runs, the current one in a notebook."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = Path(script).absolute().parent if isinstance(script, str) else Path.cwd()
    return folder if folder.is_dir() else Path.cwd()


def _ask(folder: Path, question: tuple[str, ...], limit: int, until: float) -> Answer:
    """Run git in `folder`, read at most `limit` bytes, and stop it when the time is up."""
    if time.monotonic() >= until:
        return Answer("", complete=False, ok=False)
    inherited = {name: value for name, value in os.environ.items() if name not in MISLEADING}
    options = [word for setting in CONFIGURED for word in ("-c", setting)]
    try:
        process = subprocess.Popen(
            ("git", "-C", str(folder), *options, *question),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=inherited | QUIET,
        )
    except OSError:
        return Answer("", complete=True, ok=False)
    assert process.stdout is not None
    with process, process.stdout as pipe:
        timer = threading.Timer(max(until - time.monotonic(), 0), process.kill)
        timer.start()
        read = pipe.read(limit + 1)
        cut = len(read) > limit
        if cut:
            process.kill()
        code = process.wait()
        timer.cancel()
    text = read[:limit].decode(errors="ignore")
    killed = code != 0 and time.monotonic() >= until
    return Answer(text, complete=not cut and not killed, ok=code == 0 or cut)
