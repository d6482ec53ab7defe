"""Delete old incidents."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from flightrec.cli._options import json_option, store_option
from flightrec.cli._output import plain, print_json, size
from flightrec.errors import UsageError
from flightrec.stores import Store, existing_store

if TYPE_CHECKING:
    from collections.abc import Mapping

UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}


class Age(click.ParamType[timedelta]):
    """A length of time: 30d, 12h, 2w, 90m."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read the text; fails with what is allowed."""
        match = re.fullmatch(r"(\d{1,6})([mhdw])", str(value))
        if match is None:
            self.fail(f"{value!r} is not an age; write 90m, 12h, 30d or 2w", param, ctx)
        return timedelta(seconds=int(match[1]) * UNITS[match[2]])


@click.command("prune")
@store_option
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the N newest.")
@click.option("--older-than", "age", type=Age(), metavar="AGE", help="Only older: 30d, 12h, 2w.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def command(
    url: str, keep: int | None, age: timedelta | None, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Delete old incidents.

    Their rows and verdicts go too. With both limits an incident goes when it is older than
    AGE and not among the N newest.

    \b
    Example:
      flightrec prune --older-than 30d --keep 20 --dry-run
    """
    store = existing_store(url)
    chosen = expendable(store, keep, age)
    names = [row["id"] for row in chosen]
    total = sum(row["bytes"] or 0 for row in chosen)
    what = f"{len(chosen)} of {len(store.ids())} incidents ({size(total)})"
    if chosen and not (dry_run or yes):
        if not sys.stdin.isatty():
            raise UsageError(f"this would delete {what}; say so with --yes")
        click.confirm(plain(f"delete {what} from {store.url}?"), abort=True, err=True)
    if chosen and not dry_run:
        store.delete_many(names)
    if as_json:
        print_json({"deleted": [] if dry_run else names, "would_delete": names, "bytes": total})
    else:
        print(plain(f"{'would delete' if dry_run else 'deleted'} {what}"))


def expendable(store: Store, keep: int | None, age: timedelta | None) -> list[dict[str, Any]]:
    """Return the rows of the incidents that both limits let go of, oldest first."""
    if keep is None and age is None:
        raise UsageError("say what may go: --keep N, --older-than AGE, or both")
    rows = store.rows()
    old = rows[: max(0, len(rows) - (keep or 0))]
    if age is None:
        return old
    before = datetime.now(UTC).replace(tzinfo=None) - age
    return [row for row in old if _created(store, row) < before]


def _created(store: Store, row: Mapping[str, Any]) -> datetime:
    """Return when an incident was captured; its file's time where the catalog has no row."""
    if row["created"] is not None:
        created: datetime = row["created"]
        return created
    written = store.path(row["id"]).stat().st_mtime
    return datetime.fromtimestamp(written, UTC).replace(tzinfo=None)
