"""List the incidents of a store."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from flightrec.cli._options import Listing, listing_options
from flightrec.cli._output import brief, plain, print_rows, print_table, size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLUMNS = (
    "id", "created", "kind", "step", "module", "site", "reason", "run", "run_name",
    "bytes", "status", "phase", "culprit", "op",
)  # fmt: skip
"""Columns as JSON and CSV."""

SHORTEST = 8
"""Letters of an id that are shown at least."""

LONGEST = 40
"""Letters of a run's name that are shown at most."""

UNREADABLE = "unreadable: doctor"
"""Shown where a verdict would be: the file is junk, cut off or empty; `doctor` says more."""


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
        paths = store.paths()
        shown = [_shown(row, short[row["id"]], paths.get(row["id"])) for row in rows]
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


def is_damaged(row: dict[str, Any], path: Path | None) -> bool:
    """Can the file of this row not be an incident? Its bytes are not read, nor compared."""
    if path is None or not path.is_file():
        return True
    if row["bytes"] is not None and path.stat().st_size == int(row["bytes"]):
        return False
    return not _is_complete(path)


def _is_complete(path: Path) -> bool:
    """Is this a whole HDF5 file that its writer finished?"""
    # h5py is loaded here: only an incident that the catalog does not know takes it.
    import h5py  # type: ignore[import-untyped]  # it ships no types

    from flightrec.incident.layout import COMPLETE

    try:
        with h5py.File(path, "r") as file:
            return COMPLETE in file.attrs
    except OSError:
        return False


def _shown(row: dict[str, Any], short: str, path: Path | None) -> dict[str, Any]:
    """Return what the table shows of one incident."""
    where = row["module"]
    created = row["created"]
    verdict = (row["status"] or "-").replace("not_reproduced", "not again")
    return {
        "id": short,
        "time (UTC)": created.strftime("%m-%d %H:%M") if created else None,
        "kind": row["kind"],
        "step": row["step"],
        "where": "(root)" if where == "" else where or row["site_kind"],
        "run": brief(row["run_name"] or "-", LONGEST),
        "size": size(row["bytes"]),
        "verdict": UNREADABLE if is_damaged(row, path) else verdict,
    }
