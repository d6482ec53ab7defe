"""List the incidents of a store."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from flightrec.cli._options import Listing, listing_options
from flightrec.cli._output import plain, print_rows, print_table, size

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = (
    "id", "created", "kind", "step", "module", "site", "reason", "run", "run_name",
    "bytes", "status", "phase", "culprit", "op",
)  # fmt: skip
"""Columns as JSON and CSV."""

SHORTEST = 8
"""Letters of an id that are shown at least."""


@click.command("ls")
@listing_options
@click.option("--kind", metavar="KIND", help="Only incidents of this kind: nan, zeroed, ...")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest.")
def command(listing: Listing, kind: str | None, limit: int | None) -> None:
    """List incidents, oldest first.

    \b
    Example:
      flightrec ls --kind nan --limit 20
    """
    store = listing.store
    rows = store.rows()
    short = dict(
        zip([row["id"] for row in rows], prefixes([row["id"] for row in rows]), strict=True)
    )
    rows = [row for row in rows if kind in (None, row["kind"])][-(limit or 0) :]
    if listing.style != "table":
        print_rows(rows, COLUMNS, listing.style)
    elif rows:
        shown = [_shown(row, short[row["id"]]) for row in rows]
        print_table(shown, list(shown[0]), shrink=("where", "run"))
    else:
        print(plain(f"no incidents{f' of kind {kind}' if kind else ''} in {store.url}"))


def prefixes(ids: Sequence[str]) -> list[str]:
    """Return for each of the sorted ids its shortest beginning that no other has."""
    if not ids:
        return []
    shared = [0, *(_shared(one, other) for one, other in pairwise(ids)), 0]
    return [
        id[: max(SHORTEST, before + 1, after + 1)]
        for id, (before, after) in zip(ids, pairwise(shared), strict=True)
    ]


def _shared(one: str, other: str) -> int:
    """Count the letters with which both begin."""
    for count, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return count
    return min(len(one), len(other))


def _shown(row: dict[str, Any], short: str) -> dict[str, Any]:
    """Return what the table shows of one incident."""
    where = row["module"]
    created = row["created"]
    return {
        "id": short,
        "time (UTC)": created.strftime("%m-%d %H:%M") if created else None,
        "kind": row["kind"],
        "step": row["step"],
        "where": "(root)" if where == "" else where or row["site_kind"],
        "run": row["run_name"],
        "size": size(row["bytes"]),
        "verdict": (row["status"] or "-").replace("not_reproduced", "not again"),
    }
