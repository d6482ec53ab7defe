"""Re-execution equals the live run to the bit, however the model is called."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from replay.bits import same_bits
from replay.engine import Engine
from tests.replay.exactness import check
from tests.replay.networks import Noisy


class Latent(nn.Module):
    """Returns a value beside others that were computed from it."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 8)
        self.decoder = nn.Linear(4, 6)

    def forward(self, x):
        mean, log = self.encoder(x).chunk(2, -1)
        latent = mean + torch.randn_like(mean) * (0.5 * log).exp()
        return {"image": self.decoder(latent), "mean": mean, "log": log, "parts": [latent, mean]}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 7, num_layers=2, dropout=0.3, batch_first=True)

    def forward(self, x, state=None):
        return self.lstm(x, state)


class Recomputed(nn.Module):
    def __init__(self, *, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.Tanh()) for _ in range(3)
        )

    def forward(self, x):
        x = x * self.blocks[0][0].weight.sum()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def test_dropout_batchnorm_attributes_and_keywords(tape):
    tape = tape(Noisy())
    x, y = torch.randn(10, 6), torch.randn(10, 3)
    tape.backward(mse_loss(tape.call(":", x, scale=0.3), y))
    check(tape, tape.episode())


def test_two_calls_in_one_backward(tape):
    tape = tape(Noisy())
    left, right = tape.call(":", torch.randn(10, 6)), tape.call(":", torch.randn(4, 6))
    tape.backward(left.square().mean() + right.abs().sum())
    check(tape, tape.episode())


def test_micro_batches_accumulate(tape):
    tape = tape(Noisy())
    for _ in range(3):
        tape.backward(tape.call(":", torch.randn(5, 6)).square().mean() / 3)
    check(tape, tape.episode())


def test_two_backwards_through_one_call(tape):
    tape = tape(Noisy())
    out = tape.call(":", torch.randn(5, 6))
    tape.backward(out[:, 0].sum(), retain_graph=True)
    tape.backward(out[:, 1].square().sum())
    check(tape, tape.episode())


def test_outputs_that_depend_on_each_other(tape):
    tape = tape(Latent())
    x = torch.randn(9, 6)
    out = tape.call(":", x)
    tape.backward(mse_loss(out["image"], x) + out["mean"].square().mean() - out["log"].mean())
    check(tape, tape.episode())


def test_chunked_outputs(tape):
    tape = tape(nn.Linear(6, 9))
    one, two, three = tape.call(":", torch.randn(4, 6)).chunk(3, -1)
    tape.backward((one * two).sum() + three.exp().mean())
    check(tape, tape.episode())


def test_lstm_with_packed_sequence(tape):
    tape = tape(Recurrent())
    packed = pack_padded_sequence(
        torch.randn(4, 8, 5), torch.tensor([8, 6, 3, 1]), batch_first=True
    )
    out, (hidden, _) = tape.call(":", packed)
    tape.backward(out.data.square().mean() + hidden.sum())
    check(tape, tape.episode())


def test_state_carried_into_the_next_call(tape):
    tape = tape(Recurrent())
    out, state = tape.call(":", torch.randn(4, 8, 5))
    again, _ = tape.call(":", torch.randn(4, 8, 5), state)
    tape.backward(out.sum() + again.square().sum())
    check(tape, tape.episode())


def test_two_models_where_one_feeds_the_other(tape):
    tape = tape({"g": nn.Sequential(nn.Linear(3, 6), nn.Tanh()), "d": Noisy()})
    fake = tape.call("g:", torch.randn(7, 3))
    real_score, fake_score = tape.call("d:", torch.randn(7, 6)), tape.call("d:", fake)
    tape.backward(fake_score.mean() - real_score.mean())
    check(tape, tape.episode())


def test_submodules_entered_from_outside_one_changes_its_input(tape):
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 2))
    tape = tape(model)
    hidden = tape.call(":0", torch.randn(4, 6))
    hidden = tape.call(":1", hidden * 1)
    tape.backward(tape.call(":2", hidden).sum())
    check(tape, tape.episode())


def test_input_changed_in_place(tape):
    class Normalise(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 1)

        def forward(self, batch):
            batch["x"].sub_(0.5).div_(0.25)
            batch["seen"].append(len(batch["seen"]))
            return self.head(batch["x"])

    tape = tape(Normalise())
    batch = {"x": torch.rand(4, 6), "seen": []}
    for _ in range(3):
        tape.backward(tape.call(":", batch).exp().sum())
    check(tape, tape.episode(), runs=3)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(tape, reentrant):
    tape = tape(Recomputed(reentrant=reentrant))
    tape.backward(tape.call(":", torch.randn(5, 6)).square().sum())
    check(tape, tape.episode())


@pytest.mark.parametrize("shared", [True, False])
def test_autocast_with_and_without_shared_casts(tape, shared):
    tape = tape(nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 1)))
    outs = []
    if shared:
        with torch.autocast("cpu", torch.bfloat16):
            outs = [tape.call(":", torch.randn(5, 6)) for _ in range(3)]
    else:
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                outs.append(tape.call(":", torch.randn(5, 6)))
    tape.backward(sum(out.float().square().sum() for out in outs))
    engine = Engine(tape.weights)
    engine.one_autocast = shared
    check(tape, tape.episode(), engine=engine)


def test_gradients_that_start_from_zeros(tape):
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    tape = tape(model)
    tape.backward(-0.0 * tape.call(":", torch.randn(5, 6)).sum())
    check(tape, tape.episode(grads_present=True))


def test_evaluation_without_gradient(tape):
    tape = tape(Noisy().eval())
    with torch.no_grad():
        out = tape.call(":", torch.randn(5, 6))
    trace = check(tape, tape.episode())
    assert not trace.outputs[0][0][1].requires_grad
    assert out.shape == (5, 3)


def test_inference_mode(tape):
    tape = tape(Noisy().eval())
    with torch.inference_mode():
        tape.call(":", torch.randn(5, 6))
    check(tape, tape.episode())


def test_train_and_eval_calls_mixed(tape):
    model = Noisy()
    tape = tape(model)
    first = tape.call(":", torch.randn(5, 6))
    model.eval()
    second = tape.call(":", torch.randn(5, 6))
    tape.backward((first + second).sum())
    check(tape, tape.episode())


def test_models_and_generators_are_as_before_after_a_run(tape):
    tape = tape(Noisy())
    tape.backward(tape.call(":", torch.randn(5, 6)).sum())
    model = tape.weights[""]
    engine = Engine(tape.weights)
    before = copy.deepcopy(model)
    torch.manual_seed(5)
    state, own = torch.get_rng_state(), random.getstate()
    engine.run(tape.episode())
    assert torch.equal(state, torch.get_rng_state())
    assert own == random.getstate()
    assert model.history == before.history == []
    assert model.calls == 0
    for (name, left), (_, right) in zip(
        model.state_dict().items(), before.state_dict().items(), strict=True
    ):
        assert same_bits(left, right), name
    assert all(parameter.grad is None for parameter in model.parameters())


def test_parameter_written_through_data_is_given_back(tape):
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.Parameter(torch.randn(5, 4))

        def forward(self, x):
            self.codes.data.mul_(0.9)
            return x @ self.codes

    tape = tape(Codebook())
    tape.backward(tape.call(":", torch.randn(3, 5)).sum())
    original = tape.weights[""].codes.detach().clone()
    for refresh in (None, lambda key: {":codes": original}[key]):
        engine = Engine(tape.weights, refresh=refresh)
        trace = check(tape, tape.episode(), engine=engine, runs=3)
        assert trace.written == (":codes",)
        assert same_bits(original, tape.weights[""].codes.detach())


def test_a_buffer_replaced_by_the_forward(tape):
    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            return x - self.mean

    tape = tape(Running())
    tape.call(":", torch.randn(4, 3))
    tape.call(":", torch.randn(4, 3))
    engine = Engine(tape.weights)
    trace = check(tape, tape.episode(), engine=engine)
    assert same_bits(trace.buffers[":mean"], tape.models[""].mean)
    assert same_bits(tape.weights[""].mean, torch.zeros(3))


def test_attributes_listed_for_one_call_only_are_else_as_at_the_capture(tape):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1.0
            self.seen = []

        def forward(self, x):
            self.seen.append(len(self.seen))
            return x * self.scale + len(self.seen)

    tape = tape(Scaled())
    tape.call(":", torch.ones(2))
    tape.models[""].scale = 0.5
    tape.call(":", torch.ones(2))
    episode = tape.episode()
    tape.weights[""].scale = 0.5  # what the model was when it was captured
    first = replace(episode.calls[0], attributes={":": {"scale": 1.0, "seen": []}})
    second = replace(episode.calls[1], attributes={":": {"seen": [0]}})
    check(tape, replace(episode, calls=(first, second)), runs=3)
    assert tape.weights[""].seen == []
