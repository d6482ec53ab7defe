"""Print what one incident holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flightrec.catalog.rows import flatten, number
from flightrec.cli._options import Chosen, incident_options
from flightrec.cli._output import brief, plain, print_json, print_table, size
from flightrec.types import Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flightrec.incident.reader import Incident

BULKY = frozenset({"model", "segment", "controls", "storages", "tensors", "sites"})
"""Parts of a manifest that are for programs; `flightrec export` writes them."""

STEP_COLUMNS = ("step", "loss", "grad norm", "lr", "updated", "seconds")

MANY = 12
"""Lines of one kind that are shown; more are counted."""

LONGEST = 300
"""Letters of a message that are shown; an exception's may be a page."""

FRAMES = 3
"""Places of a traceback that are shown beside the user's own."""

PHASES = {
    "data": "in the batch",
    "parameter": "in the weights or buffers",
    "forward": "in the forward pass",
    "loss": "outside every module",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer's step",
}
"""Where a culprit is that no module owns."""


@click.command("show")
@incident_options
def command(chosen: Chosen) -> None:
    """Print what an incident holds.

    That is findings, recent steps, what was not captured, the environment, earlier verdicts
    and how to go on.

    \b
    Example:
      flightrec show latest
    """
    # torch is loaded here: 1.2 s that the help of all commands does not have to wait.
    from flightrec.incident.reader import open_incident

    place = chosen.locate()
    with open_incident(place.path) as incident:
        if chosen.json:
            print_json(summary(incident))
            return
        verdicts = place.store.verdicts(place.id) if place.store else []
        for line in head(incident):
            print(plain(line))
        if incident.manifest["steps"]:
            print()
            print_table(steps(incident.manifest), STEP_COLUMNS)
        for line in tail(incident, verdicts, chosen.words(incident.id)):
            print(plain(line))


def summary(incident: Incident) -> dict[str, Any]:
    """Return the manifest without its bulky parts, and what the file itself tells."""
    manifest = incident.manifest
    return {
        "path": str(incident.path),
        "bytes": incident.path.stat().st_size,
        "own": incident.own,
        "exception": manifest["segment"]["exception"],
        **{key: value for key, value in manifest.items() if key not in BULKY},
    }


def head(incident: Incident) -> Iterator[str]:
    """Yield what happened, where and when."""
    manifest = incident.manifest
    run, code = manifest["run"], manifest["code"]
    owner = "recorded by you" if incident.own else "not signed with a key of yours"
    yield f"{incident.id}: {manifest['kind']} in step {manifest['step']}"
    yield f"  where     {_where(manifest['site'])}"
    yield f"  reason    {brief(manifest['reason'], LONGEST)}"
    yield f"  captured  {manifest['created'][:19].replace('T', ' ')} UTC: {_holds(manifest)}"
    yield f"  run       {run['name']} (pid {run['pid']}): {' '.join(run['argv'])}"
    if code is not None:
        changed = ", with uncommitted changes" if code["dirty"] else ""
        yield f"  code      {code['commit'] or 'no commit yet'}{changed}"
    yield f"  file      {incident.path}"
    yield f"            {size(incident.path.stat().st_size)}, {owner}"
    exception = manifest["segment"]["exception"]
    if exception is not None:
        yield from _raised(exception)
    yield from _several("findings", [_finding(each) for each in manifest["findings"]])


def _raised(exception: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was raised, the user's own place first, then the places nearest to it."""
    # torch is loaded here: 1.2 s that the help of all commands does not have to wait.
    from replay.frames import innermost
    from replay.raised import Frame

    frames = exception["traceback"]
    places = [Frame(file=each["file"], line=each["line"], function="") for each in frames]
    mine = innermost(places)
    own = [each for each in frames if (each["file"], each["line"]) == mine][-1:]
    others = [each for each in frames[-FRAMES:] if each not in own]
    message = f"{exception['type']}: {exception['message']}"
    yield f"  raised    {brief(message, LONGEST)}"
    for frame in own:
        yield f"  your line {_place(frame)}"
    for frame in others:
        yield f"            {_place(frame)}"


def _place(frame: Mapping[str, Any]) -> str:
    return f"{frame['file']}:{frame['line']} {frame['code'].strip()}"


def steps(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of the ring as rows of a table."""
    return [
        {
            "step": step["step"],
            "loss": number(step["loss"]),
            "grad norm": number(step["grad_norm"]),
            "lr": number(step["lr"]),
            "updated": "yes" if step["updated"] else "no",
            "seconds": number(step["seconds"]),
        }
        for step in manifest["steps"]
    ]


def tail(incident: Incident, verdicts: list[dict[str, Any]], words: str) -> Iterator[str]:
    """Yield what is missing, the machine, earlier verdicts, and how to go on."""
    manifest = incident.manifest
    gaps = [f"{gap['what']}: {gap['why']}" for gap in manifest["not_captured"]]
    yield from _several("not captured", gaps)
    yield from _several(
        "dropped", [f"{reason}: {count}" for reason, count in manifest["dropped"].items()]
    )
    yield from _several("notes", list(manifest["notes"]))
    yield from _several("environment", [_machine(manifest["environment"])])
    yield from _several("verdicts", [_verdict(row) for row in verdicts])
    yield ""
    yield "next"
    yield f"  flightrec replay {words}"
    yield f"  flightrec bisect {words}"
    yield f"  flightrec export {words} --to DIR"


def _several(title: str, lines: list[str]) -> Iterator[str]:
    if not lines:
        return
    yield ""
    yield title
    for line in lines[:MANY]:
        yield f"  {line}"
    if len(lines) > MANY:
        yield f"  and {len(lines) - MANY} more (--json has all)"


def _where(text: str | None) -> str:
    if text is None:
        return "outside every module"
    site = Site.parse(text)
    leaf = f" {site.leaf}" if site.leaf else ""
    call = f", call {site.call}" if site.call else ""
    return f"{site.module or '(root)'}, {site.kind}{leaf}{call}"


def _holds(manifest: Mapping[str, Any]) -> str:
    segment = manifest["segment"]
    counts = {
        "call": len(segment["calls"]),
        "backward": len(segment["backwards"]),
        "earlier step": len(manifest["controls"]),
        "tensor": len(manifest["tensors"]),
    }
    return ", ".join(f"{n} {name}{'s' if n != 1 else ''}" for name, n in counts.items())


def _finding(finding: Mapping[str, Any]) -> str:
    where = "" if finding["site"] is None else f" at {_where(finding['site'])}"
    what = brief(finding["text"] or f"{finding['kind']}{where}", LONGEST)
    return f"step {finding['step']}: {what} ({finding['detector']})"


def _machine(environment: Mapping[str, Any]) -> str:
    known = dict(flatten(environment))
    parts = [f"{name} {known[name]}" for name in ("torch", "python") if name in known]
    names = {"platform": "", "cpu.capability": "cpu ", "threads.intra": "threads "}
    parts += [f"{word}{known[key]}" for key, word in names.items() if known.get(key) is not None]
    return ", ".join(parts)


def _verdict(row: Mapping[str, Any]) -> str:
    where = PHASES.get(row["phase"], "") if row["module"] is None else None
    if where is None:
        where = f"in {row['module'] or '(root)'}"
    op = f", {row['op']}" if row["op"] else ""
    verb = "raised" if row["kind"] == "exception" else "made"
    made = f": {row['kind']} {verb} {where}{op}" if row["phase"] else ""
    return f"{row['judged']:%Y-%m-%d %H:%M} {row['command']}: {row['status']}{made}"
