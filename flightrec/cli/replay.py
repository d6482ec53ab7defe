"""Run a recorded step again."""

from __future__ import annotations

import click

from flightrec.cli._options import Chosen, Replaying, incident_options, replay_options


@click.command("replay")
@incident_options
@replay_options
@click.pass_obj
def command(obj: object, chosen: Chosen, replaying: Replaying) -> int:
    """Run a recorded step again and compare it.

    Exits with 0 when the failure shows again, 1 when it does not, 3 when the incident cannot
    be replayed.

    \b
    Example:
      flightrec replay latest --device cuda:0
    """
    # torch is loaded here: 1.2 s that the help of all commands does not have to wait.
    from flightrec.cli._judging import judge

    return judge(chosen, replaying, "replay", may_restart=obj is True)
