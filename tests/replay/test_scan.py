"""The operator log of a step: values, places, modules, nodes; and that nothing changes by it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from replay.bits import same_bits
from replay.engine import Engine
from replay.episode import Episode
from replay.scan import Scan


def run(model, batch, loss, *, scan=True):
    """Run one step with a `step_fn`, under a scan or not."""
    engine = Engine({"": model}, step_fn=lambda module, batch: loss(module, batch))
    episode = Episode(step=0, calls=(), batch=lambda: batch, rng=engine.generators.read())
    observer = Scan(engine.models) if scan else None
    trace = engine.run(episode, observer)
    assert trace.exception is None, trace.exception
    return trace, observer


def scanned(model, batch, loss=lambda module, batch: module(batch).sum()):
    return run(model, batch, loss)[1].log


def named(log, name, stage="forward"):
    return [op for op in log.ops if op.name.startswith(f"aten.{name}.") and op.stage == stage]


class Everything(nn.Module):
    """Most of what a network is made of."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8, sparse=True)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.rnn = nn.LSTM(8, 8, batch_first=True, dropout=0.2, num_layers=2)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.3)
        self.last = nn.Linear(8, 2)

    def forward(self, ids):
        h = self.embed(ids)
        h = h + self.norm(self.conv(h.transpose(1, 2))).transpose(1, 2)
        h = checkpoint(self.encoder, h, use_reentrant=False)
        h, _ = self.rnn(h)
        h = h + torch.fft.irfft(torch.fft.rfft(h, dim=1), n=h.shape[1], dim=1)
        h[:, 0] *= 2
        h = h + h.detach().to(torch.float8_e5m2).float() * 0.1 + h[:0].sum()
        keep = torch.rand(h.shape[:2]) > 0.1
        h = F.scaled_dot_product_attention(h, h, h) * keep[..., None]
        (slope,) = torch.autograd.grad(h.pow(2).sum(), h, create_graph=True)
        return self.last(h + slope * 0.01)


@pytest.mark.parametrize("seed", [0, 1])
def test_results_and_random_state_are_the_same_with_and_without(seed):
    torch.manual_seed(seed)
    model = Everything()
    ids = torch.randint(0, 11, (3, 5))
    results = []
    for scan in (False, True, True):
        torch.manual_seed(seed + 7)
        trace, _ = run(model, ids, lambda module, batch: module(batch).pow(2).mean(), scan=scan)
        results.append((trace, torch.random.get_rng_state()))
    plain, *watched = results
    for trace, state in watched:
        assert same_bits(trace.loss, plain[0].loss)
        assert torch.equal(state, plain[1])
        assert trace.gradients.keys() == plain[0].gradients.keys()
        for name, gradient in trace.gradients.items():
            assert same_bits(gradient, plain[0].gradients[name]), name


def test_random_draws_after_an_operator_are_the_same():
    class Noisy(nn.Module):
        def forward(self, x):
            return torch.stack([x.bernoulli(0.5), torch.rand_like(x), F.dropout(x)])

    x = torch.rand(50)
    losses = [
        run(Noisy(), x, lambda module, batch: module(batch).sum(), scan=scan)[0].loss
        for scan in (False, True)
    ]
    assert same_bits(*losses)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        h = self.first(x).exp()
        return self.second(h) + self.second(h)


def test_operators_belong_to_the_innermost_module_and_its_call():
    log = scanned(Two(), torch.ones(2, 4))
    assert [log.module(op) for op in named(log, "addmm")] == ["first", "second.0", "second.0"]
    assert [log.visit(op).call for op in named(log, "relu")] == [0, 1]
    (exp,) = named(log, "exp")
    assert (log.module(exp), exp.stage) == ("", "forward")
    (total,) = named(log, "sum", "loss")
    assert log.module(total) is None


def test_source_is_the_line_of_the_user():
    log = scanned(Two(), torch.ones(2, 4))
    (exp,) = named(log, "exp")
    (relu, _) = named(log, "relu")
    assert exp.place == (__file__, Two.forward.__code__.co_firstlineno + 1)
    assert relu.place == (__file__, Two.forward.__code__.co_firstlineno + 2)


def test_backward_operators_know_their_forward_operator():
    log = scanned(Two(), torch.ones(2, 4))
    wanted = {"threshold_backward": "aten.relu.default", "mul": "aten.exp.default"}
    for name, forward in wanted.items():
        for op in named(log, name, "backward"):
            assert log.ops[op.forward].name == forward
            assert log.module(op) == log.module(log.ops[op.forward])
            assert op.place == log.ops[op.forward].place
    turns = {log.visit(op).call for op in named(log, "threshold_backward", "backward")}
    assert turns == {0, 1}


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        h = self.first(x) * 1
        h[:, 1].sqrt_()
        return h


def test_in_place_write_to_a_view_has_its_own_node():
    log = scanned(InPlace(), torch.ones(2, 4).abs())
    (made,) = named(log, "sqrt_")
    divisions = named(log, "div", "backward")
    assert [op.forward for op in divisions] == [made.index]
    assert divisions[0].node.endswith("CopySlices")


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[0].cos()


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        return Square.apply(self.first(x))


def test_custom_function_is_known_by_the_operator_that_returned_its_value():
    log = scanned(Custom(), torch.ones(2, 4))
    (cosine,) = named(log, "cos", "backward")
    assert log.ops[cosine.forward].name == "aten.clone.default"
    assert log.module(cosine) == ""


class Recomputed(nn.Module):
    def __init__(self, *, reentrant, function):
        super().__init__()
        self.first, self.body = nn.Linear(4, 4), nn.Sigmoid()
        self.reentrant, self.function = reentrant, function

    def forward(self, x):
        h = self.first(x)
        run = (lambda each: torch.sigmoid(each) * 2) if self.function else self.body
        return checkpoint(run, h, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("function", [True, False])
def test_recomputed_operators_are_forward_ones_of_their_module(reentrant, function):
    model = Recomputed(reentrant=reentrant, function=function)
    log = scanned(model, torch.ones(2, 4))
    module = "" if function else "body"
    (again,) = named(log, "sigmoid", "backward")
    assert (again.forward, log.module(again)) == (None, module)
    (derived,) = named(log, "sigmoid_backward", "backward")
    assert log.ops[derived.forward].name == "aten.sigmoid.default"
    assert log.module(derived) == module


class Penalty(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Linear(4, 1)

    def forward(self, x):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.critic(x).pow(2).sum(), x, create_graph=True)
        return slope.norm()


def test_gradient_inside_the_forward_is_forward_and_knows_its_nodes():
    log = scanned(Penalty(), torch.ones(2, 4))
    inside = [op for op in log.ops if op.stage == "forward" and op.node == "AddmmBackward0"]
    assert {log.module(op) for op in inside} == {"critic"}
    again = [
        op for op in log.ops if op.stage == "backward" and op.forward in {o.index for o in inside}
    ]
    assert {log.module(op) for op in again} == {"critic"}


def test_every_operator_of_a_backward_pass_is_placed():
    torch.manual_seed(0)
    _, scan = run(Everything(), torch.randint(0, 11, (3, 5)), lambda m, b: m(b).pow(2).mean())
    lost = [
        (op.name, op.node) for op in scan.log.ops if op.node and op.forward is None and not op.owner
    ]
    assert lost == []


def test_gradients_and_buffers_are_measured_at_the_end():
    torch.manual_seed(0)
    _, scan = run(Everything(), torch.randint(0, 11, (3, 5)), lambda m, b: m(b).pow(2).mean())
    log = scan.log
    assert log.flag(log.gradients[":last.weight"]).absmax > 0
    assert log.flag(log.gradients[":embed.weight"]).absmax > 0
    assert log.flag(log.buffers[":norm.running_mean"]).absmax > 0
    assert scan.meter.unmeasured == 0


def test_accumulation_belongs_to_its_parameter():
    model = nn.Linear(4, 2)
    log = scanned(model, torch.ones(2, 4), lambda module, x: (module(x) + module(x)).sum())
    owners = {op.owner for op in log.ops if "AccumulateGrad" in op.node}
    assert owners == {":weight", ":bias"}


def test_tensors_of_the_step_are_not_kept_by_the_log():
    kept = []

    def loss(module, batch):
        hidden = module(batch)
        kept.append(weakref.ref(hidden))
        return hidden.sum()

    _, scan = run(Two(), torch.ones(2, 4), loss)
    gc.collect()
    assert scan.log.ops
    assert kept[0]() is None


def test_exception_is_written_down_at_its_operator():
    engine = Engine({"": nn.Embedding(3, 2)}, step_fn=lambda module, batch: module(batch).sum())
    episode = Episode(
        step=0, calls=(), batch=lambda: torch.tensor([5]), rng=engine.generators.read()
    )
    scan = Scan(engine.models)
    engine.run(episode, scan)
    assert scan.log.ops[-1].name == "aten.embedding.default"
    assert scan.log.ops[-1].error.startswith("IndexError: index out of range")


def test_tensors_that_were_there_are_known_by_name():
    model = nn.BatchNorm1d(4)
    model.scale = torch.ones(3)
    scan = Scan({"net": model})
    with scan:
        pass
    names = {leaf.names[0]: leaf.role for leaf in scan.log.leaves.values()}
    assert names["net:weight"] == "parameter"
    assert names["net:running_var"] == "buffer"
    assert names["net:scale"] == "attribute"
    scan.given("args", ({"x": torch.ones(2)},), 1)
    given = list(scan.log.leaves.values())[-1]
    assert (given.role, given.names, given.call) == ("input", ("args[0]['x']",), 1)
