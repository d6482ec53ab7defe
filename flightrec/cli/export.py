"""Write an incident as safetensors and JSON."""

from __future__ import annotations

from pathlib import Path

import click

from flightrec.cli._options import Chosen, incident_options
from flightrec.cli._output import plain, print_json, size, working


@click.command("export")
@incident_options
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write to; made where it is missing.",
)
def command(chosen: Chosen, folder: Path) -> None:
    """Write an incident as safetensors and JSON.

    weights.safetensors has parameters and buffers, step.safetensors the batch and whatever
    else belongs to the failing step, earlier.safetensors the same of healthy steps before it,
    incident.json everything else.

    \b
    Example:
      flightrec export latest --to bad-batch
    """
    # torch is loaded here: 1.2 s that the help of all commands does not have to wait.
    from flightrec.export import export_incident
    from flightrec.incident.reader import open_incident

    with open_incident(chosen.locate().path) as incident, working("exporting"):
        written = export_incident(incident, folder)
    if chosen.json:
        print_json([{"path": str(path), "bytes": path.stat().st_size} for path in written])
    else:
        for path in written:
            print(plain(f"{path}  {size(path.stat().st_size)}"))
