"""Options that several commands share; each group arrives in the command as one object."""

from __future__ import annotations

import functools
import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from flightrec.stores import Place, Store, existing_store, locate

if TYPE_CHECKING:
    from collections.abc import Callable

    from flightrec.cli._output import Style

    Function = Callable[..., Any]

DEFAULT_STORE = "incidents"

STYLES = {"csv": "CSV", "json": "JSON", "table": "a table (the default)"}
"""Ways to print rows, and what the help says of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A store to read, and how rows are printed."""

    url: str
    """Folder or URL of the store."""

    style: Style
    """How rows are printed: table, json or csv."""

    @property
    def store(self) -> Store:
        """Open the store; raises `StoreError` where there is none."""
        return existing_store(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """An incident that a user named, in whatever way."""

    url: str
    """Folder or URL of the store."""

    text: str
    """A path, an id, a unique beginning of one, or `latest`."""

    json: bool
    """Is the answer wanted as JSON?"""

    def locate(self) -> Place:
        """Find the incident; raises `IncidentNotFoundError`, `UsageError` if several fit."""
        return locate(self.url, self.text)

    def words(self, id: str) -> str:
        """Return what to type after another command to choose the same incident."""
        if self.text.endswith(".h5"):
            return shlex.quote(self.text)
        given = os.environ.get("FLIGHTREC_STORE", DEFAULT_STORE)
        return id if self.url == given else f"{id} --store {shlex.quote(self.url)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """How an incident is to be replayed."""

    device: str
    """A torch device: cpu, cuda:0."""

    model: str | None
    """`package.module:factory` that makes the model, None to rebuild it from the incident."""

    trust: tuple[str, ...]
    """Packages whose code may be imported; `.` is what lies below the current folder."""

    code: Literal["installed", "recorded"]
    """Where the user's code comes from: `installed`, or as `recorded` in the incident."""


store_option = click.option(
    "--store",
    "url",
    envvar="FLIGHTREC_STORE",
    default=DEFAULT_STORE,
    metavar="STORE",
    help="Folder or URL of the incidents.  [default: $FLIGHTREC_STORE, else ./incidents]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
incident_argument = click.argument("text", metavar="[INCIDENT]", default="latest")


def listing_options(function: Function) -> Function:
    """Add `--store`, `--json`, `--csv` and `--table`; the command gets one `Listing`."""

    @functools.wraps(function)
    def command(url: str, **others: Any) -> Any:
        chosen = [style for style in STYLES if others.pop(f"as_{style}")]
        if len(chosen) > 1:
            raise click.UsageError(f"choose one of {' and '.join(f'--{each}' for each in chosen)}")
        style = cast("Style", chosen[0] if chosen else "table")
        return function(Listing(url=url, style=style), **others)

    for style, what in STYLES.items():
        flag = click.option(f"--{style}", f"as_{style}", is_flag=True, help=f"Print {what}.")
        command = flag(command)
    return store_option(command)


def incident_options(function: Function) -> Function:
    """Add INCIDENT, `--store` and `--json`; the command gets one `Chosen`."""

    @functools.wraps(function)
    def command(url: str, text: str, *, as_json: bool, **others: Any) -> Any:
        return function(Chosen(url=url, text=text, json=as_json), **others)

    return incident_argument(store_option(json_option(command)))


def replay_options(function: Function) -> Function:
    """Add `--device`, `--model`, `--trust` and `--code`; the command gets one `Replaying`."""

    @functools.wraps(function)
    def command(
        *args: Any,
        device: str,
        model: str | None,
        trust: tuple[str, ...],
        code: Literal["installed", "recorded"],
        **others: Any,
    ) -> Any:
        replaying = Replaying(device=device, model=model, trust=trust, code=code)
        return function(*args, replaying, **others)

    options = (
        click.option(
            "--device", default="cpu", show_default=True, metavar="DEVICE", help="Replay there."
        ),
        click.option(
            "--model",
            metavar="MODULE:FACTORY",
            help="Make the model with this function instead of rebuilding it.",
        ),
        click.option(
            "--trust",
            multiple=True,
            metavar="NAME",
            help="Import this package's code; `.` is the code below this folder. Repeatable.",
        ),
        click.option(
            "--code",
            type=click.Choice(["installed", "recorded"]),
            default="installed",
            show_default=True,
            help="Use your code as it is here, or as it stands in the incident.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
