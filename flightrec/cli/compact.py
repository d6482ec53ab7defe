"""Put the rows of many incidents into few files."""

from __future__ import annotations

import click

from flightrec.catalog import compact
from flightrec.cli._options import json_option, store_option
from flightrec.cli._output import plain, print_json, working
from flightrec.stores import existing_store


@click.command("compact")
@store_option
@json_option
def command(url: str, *, as_json: bool) -> None:
    """Make queries over many incidents quicker.

    The rows of all incidents go into one file per table. Writers do this by themselves for
    every 256 small files; no incident is changed.

    \b
    Example:
      flightrec compact --store incidents
    """
    store = existing_store(url)
    with working("compacting"):
        compact(store)
    count = len(store.ids())
    if as_json:
        print_json({"store": store.url, "incidents": count})
    else:
        print(plain(f"compacted the catalog of {count} incidents in {store.url}"))
