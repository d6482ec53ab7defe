"""Take a training loop apart: each step becomes an `Episode`, as the recorder would write it."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass, field

import torch
from torch.nn.modules import module as torch_module

from flightrec.rng import Generators
from flightrec.tree import leaves
from replay.engine import Engine
from replay.episode import Episode, RecordedBackward, RecordedCall, RecordedOutput


def fresh_copy(value):
    """Copy nested arguments; tensors that require grad become non-leaves that do."""
    if isinstance(value, torch.Tensor):
        copied = value.detach().clone()
        return copied.requires_grad_().view_as(copied).clone() if value.requires_grad else copied
    if isinstance(value, dict):
        return {key: fresh_copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [fresh_copy(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return copy.deepcopy(value)


class Recorder:
    """Records the entries from outside into one model while a step runs."""

    def __init__(self, model, step, batch):
        self.model, self.step = model, step
        self.generators = Generators({"": model})
        self.names = {id(module): name for name, module in model.named_modules()}
        self.batch = fresh_copy(batch)
        self.calls, self.depth, self.gradients, self.loss = [], 0, [], None
        self.rng = self.generators.read()

    def __enter__(self):
        self.handles = [
            torch_module.register_module_forward_pre_hook(self.enter),
            torch_module.register_module_forward_hook(self.leave, always_call=True),
        ]
        root = self.model
        handle = root.register_forward_pre_hook(self.keep, with_kwargs=True)
        self.handles.append(handle)
        return self

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()

    def keep(self, module, args, kwargs):
        if self.depth == 1 and self.pending is not None:
            kept = fresh_copy((args, kwargs))
            self.pending["fresh"] = lambda: fresh_copy(kept)

    def enter(self, module, args):
        if id(module) not in self.names or torch._C._current_graph_task_id() != -1:
            return
        self.depth += 1
        if self.depth > 1:
            return
        model = self.model
        buffers = {f":{name}": each.detach().clone() for name, each in model.named_buffers()}
        kept = fresh_copy((args, {}))
        self.pending = {
            "index": len(self.calls),
            "root": "",
            "module": self.names[id(module)],
            "step": self.step,
            "rng": self.generators.read(),
            "buffers": lambda: buffers,
            "attributes": {
                f":{name}": {
                    key: copy.deepcopy(value)
                    for key, value in vars(each).items()
                    if isinstance(value, (int, float, list)) and key != "training"
                }
                for name, each in model.named_modules()
            },
            "training": frozenset(f":{n}" for n, each in model.named_modules() if each.training),
            "grad_enabled": torch.is_grad_enabled(),
            "inference_mode": torch.is_inference_mode_enabled(),
            "autocast": self.autocast(),
            "fresh": lambda: fresh_copy(kept),
        }

    def autocast(self):
        if not torch.is_autocast_enabled("cpu"):
            return ()
        kind = str(torch.get_autocast_dtype("cpu"))[6:]
        return ({"device": "cpu", "dtype": kind, "enabled": True, "cache": True},)

    def leave(self, module, args, output):
        if id(module) not in self.names or torch._C._current_graph_task_id() != -1:
            return
        self.depth -= 1
        if self.depth:
            return
        index = len(self.calls)
        outputs = []
        for leaf, tensor in leaves(output):
            outputs.append(
                RecordedOutput(
                    leaf=leaf,
                    dtype=str(tensor.dtype)[6:],
                    shape=tuple(tensor.shape),
                    hash="",
                    requires_grad=tensor.requires_grad,
                )
            )
            if tensor.requires_grad:
                tensor.register_hook(
                    lambda g, leaf=leaf: self.gradients.append((index, leaf, g.clone()))
                )
        self.calls.append(
            RecordedCall(**self.pending, outputs=tuple(outputs), raised=output is None)
        )

    def episode(self, *, healthy=False):
        gradients = list(self.gradients)
        backwards = ()
        if gradients and not healthy:
            backwards = (
                RecordedBackward(number=0, after_call=len(self.calls), gradients=lambda: gradients),
            )
        return Episode(
            step=self.step,
            calls=tuple(self.calls),
            backwards=backwards,
            rng=self.rng,
            batch=lambda: fresh_copy(self.batch),
            loss=self.loss,
        )


@dataclass
class Failure:
    """A step taken out of a loop, with the healthy ones before it."""

    engine: Engine
    episode: Episode
    controls: list = field(default_factory=list)


def take(case, target, *, controls=3, step_fn=False, with_batch=True):
    """Run the loop of a case up to step `target` and hand that step over."""
    model = case.build()
    optimizer = case.optimizer(model)
    healthy = deque(maxlen=controls)
    for number, batch in enumerate(case.batches()):
        weights = copy.deepcopy(model.state_dict()) if number == target else None
        recorder = Recorder(model, number, batch)
        fault = None
        try:
            with recorder:
                one_step(case, model, optimizer, batch, recorder)
        except Exception as raised:
            if number != target:
                raise
            fault = raised
        if number < target:
            healthy.append(recorder.episode(healthy=True))
            continue
        again = case.build()
        again.load_state_dict(weights)
        engine = Engine({"": again}, step_fn=case.step if step_fn else None)
        assert fault is None or isinstance(fault, Exception)
        return Failure(engine, recorder.episode(), list(healthy))
    raise AssertionError("the loop ended before that step")


def one_step(case, model, optimizer, batch, recorder):
    if optimizer is None:
        with torch.no_grad():
            recorder.loss = case.step(model, batch).detach()
        return
    optimizer.zero_grad()
    loss = case.step(model, batch)
    recorder.loss = loss.detach()
    loss.backward()
    recorder.__exit__()
    optimizer.step()
