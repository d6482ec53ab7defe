"""Check the installation, a store, and every incident in it."""

from __future__ import annotations

from dataclasses import asdict

import click

from flightrec.cli._options import json_option, store_option
from flightrec.cli._output import plain, print_json, working
from flightrec.stores import locate, open_store


@click.command("doctor")
@click.argument("text", metavar="[INCIDENT]", required=False)
@store_option
@click.option("--fix", is_flag=True, help="Mend the catalog, and remove half-written files.")
@json_option
def command(text: str | None, url: str, *, fix: bool, as_json: bool) -> int:
    """Check installation, store and incidents.

    Every byte of INCIDENT, or of all incidents, is compared with its hash. Exits with 1 when
    something is wrong. `--fix` makes the catalog anew from the incidents; it changes none.

    \b
    Example:
      flightrec doctor --store incidents
    """
    # torch is loaded here: 1.2 s that the help of all commands does not have to wait.
    from flightrec import health

    place = None if text is None else locate(url, text)
    store = place.store if place and place.store else open_store(url)
    with working("checking"):
        if fix:
            store.repair()
        paths = [place.path] if place else [store.path(id) for id in store.ids()]
        checks = [
            *health.check_installation(),
            *health.check_store(store),
            *health.check_incidents(paths),
        ]
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            mark = "ok   " if check.ok else "WRONG"
            print(plain(f"{mark} {check.area:<12} {check.name}: {check.found}"))
    return int(not all(check.ok for check in checks))
