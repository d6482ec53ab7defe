"""Check the installation, a store, and every incident in it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flightrec.cli._options import json_option, store_option
from flightrec.cli._output import plain, print_json, working
from flightrec.stores import existing_store, locate, open_store

if TYPE_CHECKING:
    from flightrec.health import Check
    from flightrec.stores import Store


@click.command("doctor")
@click.argument("text", metavar="[INCIDENT]", required=False)
@store_option
@click.option("--fix", is_flag=True, help="Mend the catalog, and remove half-written files.")
@json_option
def command(text: str | None, url: str, *, fix: bool, as_json: bool) -> int:
    """Check installation, store and incidents.

    Every byte of INCIDENT, or of all incidents, is compared with its hash. Exits with 1 when
    something is wrong. `--fix` makes the catalog anew from the incidents; it changes none.
    It removes half-written `.part` files of dead processes: after a minute without a write, or
    after a day where the process ran on another host.

    \b
    Example:
      flightrec doctor --store incidents
    """
    # torch is loaded here: 1.2 s that the help of all commands does not have to wait.
    from flightrec import health

    place = None if text is None else locate(url, text)
    store = existing_store(url) if place is None else place.store or open_store(url)
    with working("checking"):
        mended = _mended(store) if fix else []
        paths = [place.path] if place else [store.path(id) for id in store.ids()]
        checks = [
            *mended,
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


def _mended(store: Store) -> list[Check]:
    """Mend the store; return what was done, a line for each problem that is no more."""
    # torch is loaded here: 1.2 s that the help of all commands does not have to wait.
    from flightrec.health import Check

    before = store.problems()
    store.repair()
    left = set(store.problems())
    gone = [problem for problem in before if problem not in left]
    return [Check(area="fixed", name=store.url, found=_done(each), ok=True) for each in gone]


def _done(problem: str) -> str:
    """Return a problem that named its cure as one that has been cured."""
    said = {"removes": "removed", "adds": "added", "mends": "mended", "makes": "made"}
    what, separator, cure = problem.partition("; --fix ")
    verb, _, rest = cure.partition(" ")
    return f"{what}; {said.get(verb, verb)} {rest}" if separator else problem
