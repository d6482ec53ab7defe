"""Tell the whole story in a terminal: train, capture, replay, bisect, query."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel

from flightrec import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One training, what was planted in it, and what must be found."""

    training: str
    title: str
    story: str
    kind: str
    phase: str
    module: str
    ops: tuple[str, ...]
    """Operators that are a right answer."""


ACTS = (
    Act(
        training="columns",
        title="1. The output is blank and nothing crashes",
        story="An attention looks at whole blocks of 4 columns. Digits are batched by length, and "
        "one batch holds only narrow ones: no whole block, every weight zero, logits all 0.",
        kind="zeroed",
        phase="forward",
        module="attention",
        ops=("aten.mul.Tensor", "aten.floor_divide.default"),
    ),
    Act(
        training="crops",
        title="2. One sample turns the whole batch into NaN",
        story="Each image is standardised. A random crop, drawn inside the model, lands on blank "
        "paper: its standard deviation is 0, and batch norm spreads 0/0 over all 32 rows.",
        kind="nan",
        phase="forward",
        module="standardise",
        ops=("aten.div.Tensor",),
    ),
    Act(
        training="streams",
        title="3. The loss is fine, the gradient is infinite",
        story="Two streams are blended with sqrt(share). Training drives one share to exactly 0; "
        "the forward pass does not mind, the slope of the square root there is infinite.",
        kind="inf",
        phase="backward",
        module="blend",
        ops=("aten.div.Tensor",),
    ),
)

FAILURES = (
    "SELECT i.run_name, i.kind, v.phase, v.module, v.op, v.sample, v.fidelity FROM incidents i "
    "JOIN verdicts v ON v.incident_id = i.id WHERE v.command = 'bisect' ORDER BY i.id"
)


LEFT: dict[str, Any] = {"title_align": "left", "width": 100}


class Story:
    """Run the commands a user would type, and show them with what they print."""

    def __init__(self, store: Path, console: Console) -> None:
        """Keep incidents in `store`, which is emptied first."""
        self.store = store
        self.console = console
        shutil.rmtree(store, ignore_errors=True)

    def run(self, program: str, *words: str) -> None:
        """Show a command and run it in a new process, which prints what it likes."""
        shown = " ".join(f'"{word}"' if " " in word else word for word in words)
        start = "flightrec" if program == "flightrec" else f"python -m {program}"
        self.console.print(f"\n[bold green]$[/] {start} {shown}", soft_wrap=True)
        self.console.file.flush()
        subprocess.run(
            [sys.executable, "-m", program, *words],
            check=True,
            env={**os.environ, "FLIGHTREC_STORE": str(self.store)},
        )

    def act(self, act: Act) -> None:
        """Train until it fails, then replay and explain the first incident in new processes."""
        self.console.print()
        self.console.print(Panel(act.story, title=act.title, **LEFT))
        before = set(open_store(str(self.store)).ids())
        self.run("demo_digits.train", act.training)
        first = min(set(open_store(str(self.store)).ids()) - before)
        if not before:
            self.run("flightrec", "replay", first)
        self.run("flightrec", "bisect", first)

    def query(self) -> None:
        """Show all incidents, and ask one question over all of them."""
        self.console.print()
        self.console.print(Panel("What fails, and where?", title="4. All incidents", **LEFT))
        self.run("flightrec", "ls")
        self.run("flightrec", "query", FAILURES)

    def found(self) -> int:
        """Count the planted bugs that were named, after the verdicts in the store."""
        with open_store(str(self.store)).connect() as connection:
            rows = connection.execute(FAILURES).fetchall()
        right = 0
        for act in ACTS:
            mine = [row[1:5] for row in rows if row[0] == act.training]
            right += any((act.kind, act.phase, act.module, op) in mine for op in act.ops)
        return right


def main() -> int:
    """Tell the story; the exit code is 0 where every planted bug was named."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("demo-incidents"))
    console = Console(highlight=False)
    started = time.perf_counter()
    story = Story(parser.parse_args().store, console)
    console.print(f"[bold green]$[/] export FLIGHTREC_STORE={story.store}", soft_wrap=True)
    try:
        for act in ACTS:
            story.act(act)
        story.query()
    except subprocess.CalledProcessError as failed:
        console.print(f"{' '.join(failed.cmd[1:])} ended with exit code {failed.returncode}")
        return 1
    right = story.found()
    seconds = time.perf_counter() - started
    console.print(f"\n{right} of {len(ACTS)} planted bugs named, {seconds:.0f} s, {story.store}/")
    return 0 if right == len(ACTS) else 1


if __name__ == "__main__":
    sys.exit(main())
