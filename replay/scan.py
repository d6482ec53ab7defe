"""Watch a re-executed step operator by operator: who made which values, where, from what."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flightrec.tree import leaves
from flightrec.types import public_name
from replay.backward import NodeMap, accumulated
from replay.frames import nearest, recomputing
from replay.meter import Meter
from replay.oplog import Leaf, Op, OpLog
from replay.reinstate import unobserved
from replay.schema import asks_for_infinity, behaviour, split, tensors_in
from replay.stack import ModuleStack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import nn

    from replay.confirm import Tap
    from replay.episode import RecordedCall
    from replay.oplog import LeafRole, Span, Stage, Visit
    from replay.schema import Behaviour

    _Table: TypeAlias = tuple[LeafRole, str, str, Mapping[str, torch.Tensor | None]]
    # role, `root:path.` in front of names, public name of the module, name to tensor


class Scan:
    """An observer that writes down every operator of a run; afterwards `log` is complete.

    Values, random state and results stay what they are without it. Nothing is kept alive: of
    each tensor one reduction's result stays.
    """

    def __init__(self, models: Mapping[str, nn.Module], tap: Tap | None = None) -> None:
        """Prepare to scan one run over `models`; `tap` may step in at some operators."""
        self.models = models
        self.tap = tap
        self.log = OpLog()
        self.meter = Meter()
        self.log.flags = self.meter.flags
        self.nodes = NodeMap()
        names: dict[int, str] = {}
        for root, model in models.items():
            for name, module in model.named_modules():
                names.setdefault(id(module), public_name(root, name))
        self.modules = ModuleStack(names, self.log.visits, self._module_ended)
        self.stage: Stage = "loss"
        self.loss: Span | None = None
        self._position = -1
        self._buffers: list[_Table] = []
        self._open = ExitStack()

    def __enter__(self) -> Scan:
        """Start to watch."""
        self._learn_state()
        self._open.enter_context(self.modules)
        self._open.enter_context(_Dispatch(self))
        return self

    def __exit__(self, *_: object) -> None:
        """Stop to watch, and measure what the step left behind."""
        self._open.close()
        with torch.no_grad():
            for root, model in self.models.items():
                for name, parameter in model.named_parameters():
                    if parameter.grad is not None:
                        self.log.gradients[f"{root}:{name}"] = self.meter.span(parameter.grad)
                for name, buffer in model.named_buffers():
                    if _has_values(buffer):
                        self.log.buffers[f"{root}:{name}"] = self.meter.span(buffer)
        self.meter.settle()

    # -- told by the engine -----------------------------------------------------------------

    def call_begin(self, call: RecordedCall, module: nn.Module) -> None:  # noqa: ARG002  (protocol)
        """Take note of the state and count calls."""
        self.modules.open_call(call.step)
        self._position += 1
        self.stage = "forward"
        self._learn(self._buffers)

    def call_end(self, call: RecordedCall, output: object) -> None:  # noqa: ARG002  (protocol)
        """Take note of what the call returned."""
        self.stage = "loss"
        with unobserved(), torch.no_grad():
            for leaf, tensor in leaves(output):
                if _has_values(tensor):
                    span = self.meter.span(tensor)
                    self.log.outputs.append((self._position, leaf, span, len(self.log.ops)))
                    self.nodes.see(tensor, span.maker)

    def backward_begin(self, number: int) -> None:  # noqa: ARG002  (protocol)
        """From here operators belong to the backward pass."""
        self.stage = "backward"

    def backward_end(self, number: int) -> None:  # noqa: ARG002  (protocol)
        """The backward pass is over."""
        self.stage = "loss"

    def returned(self, loss: torch.Tensor | None) -> None:
        """Learn where the loss of a `step_fn` lies; called after the run."""
        if loss is not None:
            with torch.no_grad():
                self.loss = self.meter.span(loss)
            self.meter.settle()

    # -- what was there before --------------------------------------------------------------

    def given(self, name: str, value: object, call: int) -> None:
        """Learn the tensors of a batch or of arguments, to be called `name` and their path."""
        for path, tensor in leaves(value):
            number = self.meter.storage(tensor)
            self.log.leaves.setdefault(number, Leaf("input", (name + path,), "", call))

    def _learn_state(self) -> None:
        """Learn parameters, buffers and tensors in plain attributes, by their storages."""
        others: list[_Table] = []
        for root, model in self.models.items():
            for path, module in model.named_modules():
                head = (f"{root}:{path}." if path else f"{root}:", public_name(root, path))
                plain = {key: each for key, each in vars(module).items() if _is_tensor(each)}
                others.append(("parameter", *head, module._parameters))
                others.append(("attribute", *head, plain))
                if module._buffers:
                    self._buffers.append(("buffer", *head, module._buffers))
        self._learn(others)
        self._learn(self._buffers)

    def _learn(self, tables: Iterable[_Table]) -> None:
        found: dict[int, Leaf] = {}
        for role, prefix, owner, table in tables:
            for key, tensor in table.items():
                if tensor is None:
                    continue
                number = self.meter.storage(tensor)
                known = found.get(number, Leaf(role, (), owner))
                found[number] = known._replace(names=(*known.names, prefix + key))
        self.log.leaves.update(found)

    def _module_ended(self, visit: Visit, output: object) -> None:
        visit.ended = len(self.log.ops)
        with unobserved(), torch.no_grad():
            for leaf, tensor in [("", output)] if _is_tensor(output) else leaves(output):
                if _has_values(tensor):
                    visit.outputs.append((leaf, self.meter.span(tensor)))

    # -- operators --------------------------------------------------------------------------

    def begin(
        self,
        known: Behaviour,
        reads: Sequence[torch.Tensor],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Op:
        """Write down an operator that is about to run, with what it reads."""
        op = Op(index=len(self.log.ops), name=known.name, stage=self.stage)
        for tensor in reads:
            if _has_values(tensor):
                span = self.meter.span(tensor)
                op.reads.append(span)
                self.nodes.see(tensor, span.maker)
        op.constant = known.creates or asks_for_infinity(args, kwargs)
        op.unwritten = known.unwritten
        self._place(op)
        self.log.ops.append(op)
        return op

    def _place(self, op: Op) -> None:
        """Find the module and the line an operator belongs to."""
        entries = self.modules.entries
        top = entries[-1] if entries else None
        node: Any = torch._C._current_autograd_node()  # None outside, though torch denies it
        if node is None:
            op.visit = -1 if top is None else top.visit
            op.place = nearest(sys._getframe())
            return
        forward = self.nodes.operator(node)
        if self._is_forward_again(top):
            inside = top is not None and top.task == torch._C._current_graph_task_id()
            op.visit = top.visit if top is not None and inside else self._visit_of(forward)
            op.place = nearest(sys._getframe())
            return
        op.node = node.name()
        op.forward = forward
        if op.forward is not None:
            made = self.log.ops[op.forward]
            op.visit, op.place = made.visit, made.place
            return
        tensor = accumulated(node)
        leaf = None if tensor is None else self.log.leaves.get(self.meter.storage(tensor))
        if leaf is not None:
            op.owner = leaf.names[0]

    def _visit_of(self, forward: int | None) -> int:
        return -1 if forward is None else self.log.ops[forward].visit

    def _is_forward_again(self, top: Any) -> bool:
        """Is forward code running inside a backward pass: recomputed, not differentiated?"""
        if top is not None and top.task == torch._C._current_graph_task_id():
            return True
        return torch.is_grad_enabled() and recomputing(sys._getframe())

    def end(
        self,
        op: Op,
        result: object,
        reads: Sequence[torch.Tensor],
        changed: Sequence[torch.Tensor],
    ) -> None:
        """Write down what an operator made."""
        meter, index = self.meter, op.index
        real = [tensor for tensor in reads if _has_values(tensor)]
        sources = {span.storage: (base, span) for base, span in zip(real, op.reads, strict=True)}
        for tensor in changed:
            if _has_values(tensor):
                op.writes.append(meter.wrote(tensor, index))
        done = {id(tensor) for tensor in changed}
        for tensor in tensors_in(result):
            if id(tensor) in done or not _has_values(tensor):
                continue
            source = sources.get(meter.storage(tensor))
            if source is not None:
                op.views = not op.writes
                meter.viewed(*source, tensor, index)
            elif op.unwritten:
                op.writes.append(meter.left_unwritten(tensor, index))
            else:
                op.writes.append(meter.wrote(tensor, index))


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Hands every operator below autograd to the scan."""

    def __init__(self, scan: Scan) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._scan = scan

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = behaviour(func)
        reads, changed = split(known, args, kwargs)
        op = self._scan.begin(known, reads, args, kwargs)
        try:
            tap = self._scan.tap
            wanted = tap is not None and tap.wanted.get(op.index) == known.name
            if tap is not None and wanted:
                result = tap.run(op.index, func, args, kwargs)
            else:
                result = func(*args, **kwargs)
        except Exception as fault:
            op.error = f"{type(fault).__name__}: {fault}"
            raise
        self._scan.end(op, result, reads, changed)
        return result


def _is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor)


def _has_values(tensor: torch.Tensor) -> bool:
    """Can this tensor hold a NaN or an infinity?"""
    kind = tensor.dtype
    return kind.is_floating_point or kind.is_complex
