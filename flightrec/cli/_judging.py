"""What `replay` and `bisect` have in common: open, run again, report, keep the verdict."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

from flightrec.cli._output import plain, working
from flightrec.errors import StoreError
from flightrec.incident.reader import open_incident
from flightrec.registry import Registry
from replay import load
from replay.determinism import reexec_environment
from replay.loader import device_here
from replay.verdict import exit_code

if TYPE_CHECKING:
    from flightrec.cli._options import Chosen, Replaying
    from flightrec.incident.reader import Incident
    from flightrec.stores import Store
    from flightrec.types import Verdict

RESTARTED = "FLIGHTREC_RESTARTED"
"""Set in the environment of a process that was started anew, so that it happens once."""


def judge(
    chosen: Chosen,
    replaying: Replaying,
    command: Literal["replay", "bisect"],
    *,
    may_restart: bool,
) -> int:
    """Replay the incident, print the verdict, keep it; returns the exit code.

    With `may_restart` the process is replaced by one with the recorded number of threads and
    CPU capability, which can only be chosen at its start.
    """
    place = chosen.locate()
    with open_incident(place.path) as incident:
        if may_restart:
            restart(incident)
        with working(f"{command} of {incident.id}"):
            replayer = load(
                incident,
                model=replaying.model,
                device=device_here(replaying.device),
                trust=replaying.trust,
                code=replaying.code,
            )
            verdict = replayer.run() if command == "replay" else replayer.bisect()
        for note in replayer.notes:
            _say(note)
        render = Registry("reporters").load("json" if chosen.json else "text")
        render(verdict, incident, sys.stdout)
        if place.store is not None:
            keep(place.store, verdict, command, replaying.device)
    return exit_code(verdict, searched=command == "bisect")


def restart(incident: Incident) -> None:
    """Start this program anew where the recorded environment needs it, and only once."""
    if os.environ.get(RESTARTED):
        return
    wanted = reexec_environment(incident)
    if wanted is None:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    environment = os.environ | wanted | {RESTARTED: "1"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def keep(store: Store, verdict: Verdict, command: str, device: str) -> None:
    """Put the verdict into the store's catalog; where that cannot be, say so."""
    try:
        store.add_verdict(verdict, command=command, device=device)
    except StoreError as fault:
        _say(f"the verdict was not kept: {fault}")


def _say(text: str) -> None:
    print(plain(f"flightrec: {text}"), file=sys.stderr)
