"""Try the candidates one after the other, and write the answer down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flightrec.tree import leaves
from replay.culprit import Blame, blame_operator, owner_of
from replay.proof import Proof
from replay.raising import answer, new_in_batch
from replay.values import first_bad

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import nn

    from replay.choice import Candidate
    from replay.culprit import Culprit
    from replay.engine import Engine
    from replay.episode import Episode
    from replay.norm import Judge
    from replay.oplog import Leaf
    from replay.proof import Prover
    from replay.symptom import Symptom

CANDIDATES = 4
"""Possible producers that experiments are made on, most likely first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The experiments on the candidates of one step."""

    engine: Engine
    episode: Episode
    controls: Sequence[Episode]
    judge: Judge
    symptom: Symptom
    prover: Prover

    def value(self, candidates: Sequence[Candidate]) -> Culprit | None:
        """Return the first candidate that the experiments confirm, else the most likely one."""
        tried: list[tuple[Candidate, Proof]] = []
        passed_on: list[tuple[Candidate, Proof]] = []
        shortlist = list(candidates[:CANDIDATES])
        for number, candidate in enumerate(shortlist):
            proof = self._prove(candidate, candidates)
            (tried if proof.produces else passed_on).append((candidate, proof))
            if proof.confirmed and proof.produces:
                break
            rest = shortlist[number + 1 :]
            if candidate.reason == "origin" and not any(each.reason == "origin" for each in rest):
                self.prover.together(tried)
                if tried[0][1].confirmed:
                    break
        tried = tried or passed_on
        if not tried:
            return None
        chosen = next((each for each in tried if each[1].confirmed), tried[0])
        blame = self._blame(chosen[0], candidates)
        return answer(self.symptom.kind, blame, chosen[1], self.episode)

    def _prove(self, candidate: Candidate, candidates: Sequence[Candidate]) -> Proof:
        if candidate.reason == "gradient":
            return self.prover.gradients(self.episode)
        if candidate.reason != "leaf":
            return self.prover.operator(candidate)
        if candidate.leaf is None or candidate.leaf.role == "input":
            return self._prove_data(candidate)
        return self._prove_state([each for each in candidates if each.reason == "leaf"])

    def _prove_data(self, candidate: Candidate) -> Proof:
        proof = Proof(repeats=True)
        leaf = candidate.leaf
        if leaf is None:
            proof.add("input", "a tensor that no operator of the step made is bad", value=True)
            if candidate.op < len(self.judge.log.ops):
                self.prover.heal(self.judge.log.ops[candidate.op], proof)
                return proof
        else:
            classes = " and ".join(sorted(candidate.classes))
            proof.add("input", f"{leaf.names[0]} holds {classes} as it is handed over", classes)
            tensor = self._input(leaf)
            if tensor is not None:
                proof.index = first_bad([tensor], zeros=self.judge.zeros)
        self.prover.given(proof)
        return proof

    def _input(self, leaf: Leaf) -> torch.Tensor | None:
        """Return an argument or a tensor of the batch by its path."""
        name = leaf.names[0]
        if name.startswith("batch"):
            given = {} if self.episode.batch is None else {"batch": self.episode.batch()}
        else:
            call = next(each for each in self.episode.calls if each.index == leaf.call)
            args, kwargs = call.fresh()
            given = {"args": args, "kwargs": kwargs}
        for head, value in given.items():
            for path, tensor in leaves(value):
                if head + path == name:
                    return tensor
        return None

    def _prove_state(self, found: Sequence[Candidate]) -> Proof:
        known = [each.leaf for each in found if each.leaf is not None and each.leaf.role != "input"]
        names = [leaf.names[0] for leaf in known]
        proof = self.prover.state(lambda: [self._tensor(name) for name in names], names)
        tensor = self._tensor(names[0])
        proof.index = first_bad([tensor], zeros=self.judge.zeros)
        classes = " and ".join(sorted(found[0].classes))
        name = names[0].partition(":")[2]
        proof.add("state", f"{name} holds {classes} before the step begins", classes)
        return proof

    def _tensor(self, name: str) -> torch.Tensor:
        """Return a parameter, buffer or tensor attribute of the models."""
        module, key = self._owner(name)
        tensor: torch.Tensor = getattr(module, key)
        return tensor

    def _owner(self, name: str) -> tuple[nn.Module, str]:
        """Return the module that `root:path.key` belongs to, and the key."""
        root, _, dotted = name.partition(":")
        path, _, key = dotted.rpartition(".")
        return self.engine.modules[f"{root}:{path}"], key

    # -- the answer -------------------------------------------------------------------------

    def _blame(self, candidate: Candidate, candidates: Sequence[Candidate]) -> Blame:
        if candidate.reason == "gradient":
            return Blame(phase="backward")
        if candidate.reason != "leaf":
            op = self.judge.log.ops[candidate.op]
            return blame_operator(self.judge.log, op, state=self.symptom.where == "buffer")
        log = self.judge.log
        if candidate.leaf is None and candidate.op < len(log.ops):
            reader = blame_operator(log, log.ops[candidate.op])
            return replace(reader, op=None, backward_of=None)
        if candidate.leaf is None or candidate.leaf.role == "input":
            new = new_in_batch(self.episode, self.controls)
            wanted = [word for _, word in new if (word == "zero") is self.judge.zeros]
            spoiled = self.episode.batch is None or wanted
            return Blame(phase="data" if spoiled else "loss")
        found = [each for each in candidates if each.reason == "leaf"]
        parameters = sum(1 for model in self.engine.models.values() for _ in model.parameters())
        owner = owner_of(found, parameters=parameters)
        if owner is None:
            return Blame(phase="parameter")
        module, _ = self._owner(owner.names[0])
        return Blame(phase="parameter", module=owner.module, module_type=type(module).__name__)
