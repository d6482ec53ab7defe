"""Find what made the first bad value of an incident."""

from __future__ import annotations

import click

from flightrec.cli._options import Chosen, Replaying, incident_options, replay_options


@click.command("bisect")
@incident_options
@replay_options
@click.pass_obj
def command(obj: object, chosen: Chosen, replaying: Replaying) -> int:
    """Find what made the first bad value.

    That is the module, the operator, the source line and the sample of the batch.

    Exits with 0 when it was found, 1 when nothing was, 3 when the incident cannot be replayed.

    \b
    Example:
      flightrec bisect latest --trust mypackage
    """
    # torch is loaded here: 1.2 s that the help of all commands does not have to wait.
    from flightrec.cli._judging import judge

    return judge(chosen, replaying, "bisect", may_restart=obj is True)
