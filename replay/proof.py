"""Prove or refute a candidate: run it alone, make it finite and see whether the step heals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flightrec.tree import leaves
from flightrec.types import Evidence
from replay.confirm import Heal, Keep, MendState
from replay.incoming import mended
from replay.values import finite_copy, first_bad, flags_of, make_finite, make_uneven

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from replay.choice import Candidate
    from replay.episode import Arguments, Episode, RecordedCall
    from replay.norm import Judge
    from replay.observing import Judged
    from replay.oplog import Op
    from replay.raised import Raised


@dataclass(slots=True)
class Proof:
    """What the experiments said about one candidate."""

    repeats: bool = False
    """Alone on its recorded inputs it makes the bad value again."""

    heals: bool = False
    """With its output made finite the step is healthy."""

    produces: bool = True
    """It makes bad values even from inputs that were made finite."""

    index: tuple[int, ...] | None = None
    evidence: list[Evidence] = field(default_factory=list)

    @property
    def confirmed(self) -> bool:
        """Did both experiments succeed?"""
        return self.repeats and self.heals

    def add(self, kind: str, text: str, value: float | int | str | bool | None = None) -> None:  # noqa: FBT001  (a value like any other)
        """Write down what was seen."""
        self.evidence.append(Evidence(kind=kind, text=text, value=value))


class Prover:
    """Runs experiments on candidates of one scanned step."""

    def __init__(self, judge: Judge, bench: Judged) -> None:
        """Experiment on what `judge` judged, on a bench that tells whether a run fails."""
        self._judge = judge
        self._log = judge.log
        self._bench = bench

    def operator(self, candidate: Candidate) -> Proof:
        """Experiment on an operator: keep what it reads and mend what it makes, in one run."""
        proof = Proof()
        op = self._log.ops[candidate.op]
        keeper = Keep({op.index: op.name}, self._mend(op))
        healed = self._bench.is_healthy(keeper)
        kept = keeper.kept.get(op.index)
        if kept is None:
            proof.add("isolated", f"{op.name} was not reached again, so it was not run alone")
            return proof
        bad = self._bad_outputs(op, kept.outputs)
        proof.index = first_bad(bad, zeros=self._judge.zeros)
        again = self._bad_outputs(op, kept.alone().outputs)
        proof.repeats = bool(again)
        words = "makes" if proof.repeats else "does not make"
        proof.add(
            "isolated",
            f"{op.name} run alone on its recorded inputs {words} the bad value again",
            proof.repeats,
        )
        if candidate.reason == "suspect":
            proof.produces = bool(self._bad_outputs(op, kept.alone(finite_copy).outputs))
        self.heal(op, proof, alone=healed)
        return proof

    def raising(self, op: Op) -> Proof:
        """Experiment on an operator that raised."""
        proof = Proof()
        keeper = Keep({op.index: op.name})
        self._bench.run(keeper)
        kept = keeper.kept.get(op.index)
        if kept is not None:
            error = kept.alone().error
            proof.repeats = bool(error) and error.partition(":")[0] == op.error.partition(":")[0]
            words = f"raises again: {error}" if proof.repeats else "does not raise"
            proof.add(
                "isolated", f"{op.name} run alone on its recorded inputs {words}", proof.repeats
            )
        return proof

    def raises_again(self, fault: Raised) -> Proof:
        """Re-execute a step that an exception ended in code that is no operator."""
        proof = Proof()
        again = self._bench.run().exception
        proof.repeats = again is not None and (again.type, again.module) == (
            fault.type,
            fault.module,
        )
        words = "raises the same exception in the same place again" if proof.repeats else "differs"
        proof.add("repeated", f"the step, run once more, {words}", proof.repeats)
        return proof

    def _bad_outputs(self, op: Op, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return those of an operator's outputs that are bad."""
        real = [each for each in outputs if each.dtype.is_floating_point or each.dtype.is_complex]
        bad = []
        for position, tensor in enumerate(real):
            for flags in flags_of([tensor]):
                zero = self._judge.zeros and flags.zero(self._judge.tolerance(op, position))
                if flags.bad or zero:
                    bad.append(tensor)
        return bad

    def heal(self, op: Op, proof: Proof, *, alone: bool | None = None) -> None:
        """Mend the output of `op`, then that of its siblings too, then replace it altogether.

        The last is for an overflow: what is left of it when infinities are gone is still huge.
        `alone` is the answer of the first of these where it is known.
        """
        siblings = self._siblings(op)
        word = "non-zero" if self._judge.zeros else "finite"
        mend = self._mend(op)
        text = f"making the output of {op.name} {word}"
        trials = [([op], mend, text)]
        if len(siblings) > 1:
            runs = f"all {len(siblings)} runs of {op.name} at this place"
            trials.append((siblings, mend, f"making the output of {runs} {word}"))
        if not self._judge.zeros:
            change = make_uneven(self._size(op))
            words = f"replacing the output of {op.name} by values of ordinary size"
            trials.append(([op], change, words))
        for number, (ops, change, words) in enumerate(trials):
            healed = alone if number == 0 and alone is not None else self._heals(ops, change)
            if healed:
                proof.heals = True
                proof.add("healed", f"{words} heals the step", value=True)
                return
        proof.add("healed", f"{text} does not heal the step", value=False)

    def _heals(self, ops: Sequence[Op], mend: Callable[[torch.Tensor], None]) -> bool:
        observer = Heal({each.index: each.name for each in ops}, mend)
        return self._bench.is_healthy(observer) and not observer.strayed

    def together(self, tried: Sequence[tuple[Candidate, Proof]]) -> None:
        """Mend several producers at once where none of them was enough alone.

        What comes of it is written into the proof of the first.
        """
        made = [each for each, _ in tried if each.reason == "origin"]
        if len(made) < 2:
            return
        ops = [self._log.ops[each.op] for each in made]
        proof = next(proof for each, proof in tried if each.reason == "origin")
        if self._heals(ops, self._mend(ops[0])):
            proof.heals = True
            names = " and ".join(f"{op.name} at operator {op.index}" for op in ops)
            proof.add("healed", f"mending {names} together heals the step", value=True)

    def _size(self, op: Op) -> float:
        """Return the magnitude that healthy steps have at this place, 1 where it is not known."""
        return self._judge.healthy.size(self._judge.sites[op.index], 0) or 1.0

    def _mend(self, op: Op) -> Callable[[torch.Tensor], None]:
        return make_uneven(self._size(op)) if self._judge.zeros else make_finite

    def _siblings(self, op: Op) -> list[Op]:
        """Return the runs of the same line in modules of the same type."""
        mine = self._log.visit(op)
        found = []
        for other in self._log.ops:
            theirs = self._log.visit(other)
            if (other.name, other.stage, other.place) == (op.name, op.stage, op.place) and (
                mine is None or (theirs is not None and theirs.module_type == mine.module_type)
            ):
                found.append(other)
        return found

    # -- tensors that were bad before -------------------------------------------------------

    def given(self, proof: Proof) -> None:
        """Experiment on batch and arguments: make every bad value in them finite."""
        mend = self._mended

        def edit(
            call: RecordedCall | None,  # noqa: ARG001  (the engine's signature)
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
        ) -> Arguments:
            for _, tensor in leaves((args, kwargs)):
                mend(tensor)
            return args, kwargs

        proof.heals = self._bench.is_healthy(edit=edit)
        words = "heals the step" if proof.heals else "does not heal the step"
        what = "non-zero" if self._judge.zeros else "finite"
        proof.add("healed", f"making what was handed over {what} {words}", proof.heals)

    def gradients(self, episode: Episode) -> Proof:
        """Experiment on the gradients that entered through outputs: make them finite."""
        proof = Proof(repeats=True)
        text = "the gradient that loss code outside every module gave to an output is bad"
        proof.add("given", text, value=True)
        proof.heals = self._bench.is_healthy(episode=mended(episode, self._mended))
        words = "heals the step" if proof.heals else "does not heal the step"
        proof.add("healed", f"making it sound {words}", proof.heals)
        return proof

    def state(self, tensors: Callable[[], Sequence[torch.Tensor]], names: Sequence[str]) -> Proof:
        """Experiment on parameters and buffers that were bad before the step."""
        proof = Proof(repeats=True)
        what = "non-zero" if self._judge.zeros else "finite"
        proof.heals = self._bench.is_healthy(MendState(tensors, self._mended))
        words = "heals the step" if proof.heals else "does not heal the step"
        shown = ", ".join(name.partition(":")[2] for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        proof.add("healed", f"making {shown}{more} {what} {words}", proof.heals)
        return proof

    def _mended(self, tensor: torch.Tensor) -> None:
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            return
        if not self._judge.zeros:
            make_finite(tensor)
        elif any(flags.zero() for flags in flags_of([tensor])):
            make_uneven(1.0)(tensor)
