"""The figures as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console


def show(found: Mapping[str, Any], console: Console) -> None:
    """Print one table for each kind of measurement there is."""
    console.print("  ".join(f"{name} {value}" for name, value in found["machine"].items()))
    if found["overhead"]:
        console.print(overhead_table(found["overhead"]))
    for name in ("capture", "bisect"):
        if name in found:
            console.print(facts_table(name, found[name]))


def overhead_table(rows: list[Mapping[str, Any]]) -> Table:
    """Return step time with a tool over step time without."""
    table = Table(title="Step time with a tool on, as a multiple of the step time without")
    table.add_column("workload")
    table.add_column("step", justify="right")
    table.add_column("tool")
    table.add_column("ratio", justify="right")
    table.add_column("95% interval", justify="right")
    table.add_column("pairs", justify="right")
    table.add_column("inside", justify="right")
    table.add_column("goal", justify="right")
    before = ""
    for row in rows:
        ratio, first = row["ratio"], row["workload"] != before
        table.add_row(
            row["workload"] if first else "",
            f"{row['step_ms']:.1f} ms" if first else "",
            row["tool"],
            f"{ratio['median']:.3f}",
            f"{ratio['low']:.3f} to {ratio['high']:.3f}",
            str(ratio["pairs"]),
            f"{row['inside']:.3f}" if row["inside"] else "",
            f"{row['goal']:.2f}" if row["goal"] else "",
        )
        before = row["workload"]
    return table


def facts_table(title: str, facts: Mapping[str, Any]) -> Table:
    """Return a table of names and numbers."""
    table = Table(title=title, show_header=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), shown(value))
    return table


def shown(value: Any) -> str:
    """Return a number, a ratio with its interval, or a text."""
    if isinstance(value, dict):
        return f"{value['median']:.3f}  ({value['low']:.3f} to {value['high']:.3f})"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
