"""A small tape recorder: run a plain live step and write down an `Episode` of it by hand."""

from __future__ import annotations

import copy

import pytest
import torch

from flightrec import FlightRecorder
from flightrec.rng import Generators
from flightrec.tree import leaves, tensor_hash
from replay.episode import Episode, RecordedBackward, RecordedCall, RecordedGradient, RecordedOutput
from tests.replay import networks


def fresh_copy(value):
    """Deep-copy arguments; tensors that required grad become non-leaf copies that do."""
    memo = {}

    def visit(item):
        if id(item) in memo:
            return memo[id(item)]
        if isinstance(item, torch.Tensor):
            copied = item.detach().clone()
            if item.requires_grad:
                copied = copied.requires_grad_().view_as(copied).clone()
        elif isinstance(item, dict):
            copied = {key: visit(each) for key, each in item.items()}
        elif isinstance(item, tuple) and hasattr(item, "_fields"):
            copied = type(item)(*(visit(each) for each in item))
        elif isinstance(item, (list, tuple)):
            copied = type(item)(visit(each) for each in item)
        else:
            copied = copy.deepcopy(item)
        memo[id(item)] = copied
        return copied

    return visit(value)


class Tape:
    """Records entries into models and gradients at their outputs, as the recorder does."""

    def __init__(self, models):
        self.models = models
        self.generators = Generators(models)
        self.calls = []
        self.backwards = []
        self.rng = self.generators.read()
        self.weights = copy.deepcopy(models)
        self._gradients = []

    def call(self, name, *args, **kwargs):
        """Enter `root:module` with the state around it written down."""
        root, _, dotted = name.partition(":")
        module = self.models[root].get_submodule(dotted)
        kept = fresh_copy((args, kwargs))
        state = {
            f"{key}:{buffer}": value.detach().clone()
            for key, model in self.models.items()
            for buffer, value in model.named_buffers()
        }
        plain = {
            f"{key}:{inner}": {
                attribute: copy.deepcopy(value)
                for attribute, value in vars(each).items()
                if isinstance(value, (int, float, list)) and attribute != "training"
            }
            for key, model in self.models.items()
            for inner, each in model.named_modules()
        }
        training = frozenset(
            f"{key}:{inner}"
            for key, model in self.models.items()
            for inner, each in model.named_modules()
            if each.training
        )
        recorded = {
            "index": len(self.calls),
            "root": root,
            "module": dotted,
            "fresh": lambda: fresh_copy(kept),
            "rng": self.generators.read(),
            "buffers": lambda: state,
            "attributes": plain,
            "training": training,
            "grad_enabled": torch.is_grad_enabled(),
            "inference_mode": torch.is_inference_mode_enabled(),
            "autocast": self._autocast(),
        }
        index = len(self.calls)
        self.calls.append(None)
        output = None
        try:
            output = module(*args, **kwargs)
        finally:
            outputs = []
            for leaf, tensor in leaves(output):
                value = tensor.detach().clone()
                outputs.append(
                    RecordedOutput(
                        leaf=leaf,
                        dtype=str(value.dtype)[6:],
                        shape=tuple(value.shape),
                        hash=tensor_hash(value),
                        value=lambda value=value: value,
                        requires_grad=tensor.requires_grad,
                    )
                )
                if tensor.requires_grad:
                    tensor.register_hook(
                        lambda g, leaf=leaf: self._gradients.append((index, leaf, g.clone()))
                    )
            self.calls[index] = RecordedCall(
                **recorded, outputs=tuple(outputs), raised=output is None
            )
        return output

    def _autocast(self):
        if not torch.is_autocast_enabled("cpu"):
            return ()
        dtype = str(torch.get_autocast_dtype("cpu"))[6:]
        return ({"device": "cpu", "dtype": dtype, "enabled": True, "cache": True},)

    def backward(self, loss, **options):
        """Run the live backward and keep what reached the outputs."""
        self._gradients = gradients = []
        loss.backward(**options)
        self.backwards.append(
            RecordedBackward(
                number=len(self.backwards),
                after_call=len(self.calls),
                gradients=lambda: gradients,
            )
        )

    def episode(self, **fields):
        """Hand over what was recorded, with the gradients the parameters hold now."""
        gradients = tuple(
            RecordedGradient(
                parameter=f"{root}:{name}",
                hash=tensor_hash(parameter.grad),
                value=parameter.grad.clone,
            )
            for root, model in self.models.items()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        )
        return Episode(
            step=0,
            calls=tuple(self.calls),
            backwards=tuple(self.backwards),
            rng=self.rng,
            gradients=gradients,
            **fields,
        )


@pytest.fixture
def tape():
    """Build a tape over models: `tape(model)` or `tape({"g": ..., "d": ...})`."""

    def build(models):
        torch.manual_seed(0)
        return Tape(models if isinstance(models, dict) else {"": models})

    return build


@pytest.fixture(autouse=True)
def own_key(tmp_path, monkeypatch):
    """Keep the user's own key out of it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("FLIGHTREC_KEY", raising=False)
    monkeypatch.delenv("FLIGHTREC_TRUST", raising=False)


@pytest.fixture
def record(tmp_path):
    """Train with `loss_fn` and return the store; the last step is captured by hand."""

    def run(loss_fn, *, model=None, step_fn=None, zero=True, capture=True, data=None, **options):
        torch.manual_seed(1)
        model = model or networks.Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        store = str(tmp_path / "store")
        with FlightRecorder(
            store, model=model, optimizer=optimizer, step_fn=step_fn, **options
        ) as recorder:
            for number in range(3):
                batch = networks.batch(number) if data is None else data(number)
                with recorder.step(batch):
                    loss = loss_fn(model, batch)
                    recorder.loss(loss)
                    if zero:
                        optimizer.zero_grad()
                    loss.backward()
                    if capture and number == 2:
                        recorder.capture("a look at it")
                    optimizer.step()
        return store

    return run
