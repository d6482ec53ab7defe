"""Ask the catalog with SQL."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from flightrec.cli._options import Listing, listing_options
from flightrec.cli._output import print_rows
from flightrec.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flightrec.catalog.views import LockedConnection

AT_ONCE = 10_000
"""Rows that are fetched at a time."""


@click.command("query")
@click.argument("sql", required=False, metavar="[SQL]")
@listing_options
def command(listing: Listing, sql: str | None) -> None:
    """Ask the catalog with SQL.

    SQL is one statement that reads; without it, it comes from standard input. The views are
    runs, incidents, steps, stats, findings, tensors, environment and verdicts;
    `DESCRIBE stats` lists the columns of one, docs/sql.md has them all.

    \b
    Example:
      flightrec query "SELECT kind, module, count(*) AS n FROM incidents GROUP BY ALL"
    """
    if sql in (None, "-") and sys.stdin.isatty():
        raise QueryError('give a statement: flightrec query "SELECT * FROM incidents"')
    statement = sys.stdin.read() if sql in (None, "-") else sql
    with listing.store.connect() as connection:
        connection.execute(str(statement))
        names = unique([column[0] for column in connection.description])
        rows = (dict(zip(names, row, strict=True)) for row in fetched(connection))
        print_rows(rows, names, listing.style)


def fetched(connection: LockedConnection) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the newest result, holding a part of them at a time."""
    while rows := connection.fetchmany(AT_ONCE):
        yield from rows


def unique(names: list[str]) -> list[str]:
    """Tell columns of the same name apart: a, a_2, a_3."""
    found: list[str] = []
    for name in names:
        count = 1
        candidate = name
        while candidate in found:
            count += 1
            candidate = f"{name}_{count}"
        found.append(candidate)
    return found
