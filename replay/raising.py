"""Failures that are not bad values of re-executed operators: exceptions, and the loss outside."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from flightrec.tree import leaves
from flightrec.types import public_name
from replay.culprit import Blame, Culprit, blame_operator
from replay.frames import innermost, source_line
from replay.look import classes_in
from replay.proof import Proof
from replay.raised import Frame
from replay.values import bad_rows, first_bad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from flightrec.types import Phase
    from replay.engine import Engine, Trace
    from replay.episode import Episode
    from replay.norm import Judge
    from replay.oplog import Op, OpLog
    from replay.proof import Prover
    from replay.raised import Raised

_PARTS: Mapping[str, Phase] = {"optim": "optimizer", "autograd": "backward"}
"""Folders of torch whose frames in a traceback tell the phase."""


def raised(
    trace: Trace, episode: Episode, engine: Engine, judge: Judge, prover: Prover
) -> Culprit | None:
    """Return the operator, module and line that raised what ended the re-executed step."""
    fault = trace.exception
    if fault is None:
        return None
    blame = _rose_in(judge.log, engine, fault)
    op = _operator(judge.log, fault)
    if op is None:
        proof = prover.raises_again(fault)
    else:
        proof = prover.raising(op)
        blame = replace(blame_operator(judge.log, op), source=blame.source)
    proof.add("exception", f"{fault.type}: {fault.message}", fault.type)
    return answer("exception", blame, proof, episode)


def answer(kind: str, blame: Blame, proof: Proof, episode: Episode) -> Culprit:
    """Put the parts of a culprit together."""
    parts = {each.name: getattr(blame, each.name) for each in fields(blame)}
    known = {call.step for call in episode.calls}
    parts["step"] = blame.step if blame.step in known else episode.step
    return Culprit(
        kind=kind,
        index=proof.index,
        confirmed=proof.confirmed or (kind == "exception" and proof.repeats),
        evidence=tuple(proof.evidence),
        **parts,
    )


def _operator(log: OpLog, fault: Raised) -> Op | None:
    """Return the last operator that raised this very exception."""
    text = f"{fault.type.rpartition('.')[2]}: {fault.message}"
    return next((op for op in reversed(log.ops) if op.error == text), None)


def _rose_in(log: OpLog, engine: Engine, fault: Raised) -> Blame:
    """Return the innermost module that an exception rose in, and the user's line."""
    phase: Phase = "backward" if fault.phase == "backward" else "loss"
    source = source_line(innermost(fault.traceback))
    if fault.module is None:
        return Blame(phase=phase, source=source)
    root, _, path = fault.module.partition(":")
    name = public_name(root, path)
    open_visits = [each for each in log.visits if each.module == name and each.ended < 0]
    visit = open_visits[-1] if open_visits else None
    return Blame(
        phase="backward" if phase == "backward" else "forward",
        module=name,
        module_type=type(engine.modules[fault.module]).__name__,
        call=None if visit is None else visit.call,
        root_call=None if visit is None else visit.root_call,
        step=None if visit is None else visit.step,
        source=source,
    )


def outside(episode: Episode, controls: Sequence[Episode], kind: str) -> Culprit | None:
    """Return what can be said of a failure in the user's code that was not re-executed.

    Without a `step_fn` neither the loss code nor an exception in it is run again.
    """
    fault = episode.exception
    if kind == "exception" and fault is not None:
        return _raised_outside(episode, fault)
    if kind not in ("nan", "inf") or episode.loss is None:
        return None
    classes = {word for _, word in classes_in(episode.loss)} - {"zero"}
    if not classes:
        return None
    proof = Proof()
    text = "all outputs of modules are finite and the loss is not; give step_fn to replay it"
    proof.add("loss", text, " and ".join(sorted(classes)))
    kind = "nan" if "nan" in classes else "inf"
    bad = [each for each in new_in_batch(episode, controls) if each[1] != "zero"]
    if not bad:
        return answer(kind, Blame(phase="loss"), proof, episode)
    tensor = _tensor_at(episode, bad[0][0])
    proof.index = None if tensor is None else first_bad([tensor], zeros=False)
    proof.add("input", f"batch{bad[0][0]} holds {bad[0][1]}, which no control's does", bad[0][1])
    found = answer(kind, Blame(phase="data"), proof, episode)
    rows = set() if tensor is None else bad_rows(tensor)
    return replace(found, sample=rows.pop()) if len(rows) == 1 else found


def _raised_outside(episode: Episode, fault: Mapping[str, Any]) -> Culprit:
    """Say where an exception rose that was recorded but not re-executed."""
    proof = Proof()
    frames = [
        Frame(file=each["file"], line=each["line"], function=each["function"])
        for each in fault.get("traceback", ())
    ]
    proof.add("exception", f"{fault['type']}: {fault['message']}", fault["type"])
    blame = Blame(phase=_phase(frames), source=source_line(innermost(frames)))
    return answer("exception", blame, proof, episode)


def new_in_batch(episode: Episode, controls: Sequence[Episode]) -> list[tuple[str, str]]:
    """Return (path, class) of bad values in the batch that no control's batch has."""
    if episode.batch is None:
        return []
    usual: set[tuple[str, str]] = set()
    for control in controls:
        if control.batch is not None:
            usual |= classes_in(control.batch())
    return sorted(each for each in classes_in(episode.batch()) - usual)


def _tensor_at(episode: Episode, path: str) -> torch.Tensor | None:
    """Return the tensor of the batch with this path."""
    batch = None if episode.batch is None else episode.batch()
    return next((tensor for each, tensor in leaves(batch) if each == path), None)


def _phase(frames: Sequence[Frame]) -> Phase:
    """Tell from a recorded traceback in which part of the step an exception rose."""
    for part, phase in _PARTS.items():
        if any(f"/torch/{part}/" in each.file for each in frames):
            return phase
    return "loss"
