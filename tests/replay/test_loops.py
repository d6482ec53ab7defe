"""Which loops give their gradients back from the calls alone, and which say why they do not."""

import math

import pytest
import torch
from torch import nn

import replay
from flightrec import FlightRecorder
from flightrec.errors import CannotRebuildError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.drop, self.out = nn.Dropout(0.3), nn.Linear(8, 6)

    def forward(self, x):
        return self.out(self.drop(torch.tanh(self.norm(self.inp(x)))))


class Chunked(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x).chunk(2, dim=1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 5, 2, dropout=0.2, batch_first=True)

    def forward(self, packed):
        return self.rnn(packed)[0].data


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        out = self.net(x)
        return out[:, :3], out[:, 3:]


def data(n=4):
    g = torch.Generator().manual_seed(3)
    return [torch.randn(5, 4, generator=g) for _ in range(n)]


def squared(model, x):
    return model(x).square().mean()


def step_loss(model, batch):
    """A step function of the kind users give: the loss, from model and batch."""
    return squared(model, batch) + 0.1 * sum(p.square().sum() for p in model.parameters())


def record(tmp_path, model, body, *, steps=3, keep=False, none=True, **options):
    """Run `body(model, x)` -> loss for some steps, and capture the last."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with FlightRecorder(tmp_path, model=model, optimizer=optimizer, **options) as recorder:
        for number, x in enumerate(data(steps)):
            with recorder.step(x):
                if not keep:
                    optimizer.zero_grad(set_to_none=none)
                loss = body(model, x)
                recorder.loss(loss)
                loss.backward()
                if number == steps - 1:
                    recorder.capture("look")
                optimizer.step()
    return replay.load(tmp_path).run()


def two_calls(model, x):
    return (model(x) * model(x.flip(0))).mean()


def micro_batches(model, x):
    for part in x.chunk(2):
        squared(model, torch.cat([part, part])).backward()
    return squared(model, x)


def chunks(model, x):
    left, right = model(x)
    return (left.exp() * right).mean()


@pytest.mark.parametrize(
    ("model", "body"),
    [(Net, squared), (Net, two_calls), (Net, micro_batches), (Chunked, chunks)],
    ids=["plain", "two calls", "micro-batches", "chunks"],
)
def test_available(tmp_path, model, body):
    torch.manual_seed(0)
    verdict = record(tmp_path, model(), body)
    assert (verdict.fidelity, verdict.gradients) == ("bit_exact", "bit_exact")


def test_zeros_in_grad_are_as_good_as_none(tmp_path):
    torch.manual_seed(0)
    assert record(tmp_path, Net(), squared, none=False).gradients == "bit_exact"


def test_an_lstm_over_packed_sequences(tmp_path):
    def body(model, x):
        packed = nn.utils.rnn.pack_padded_sequence(
            x.unsqueeze(0).repeat(3, 1, 1), [5, 3, 2], batch_first=True
        )
        return model(packed).square().mean()

    torch.manual_seed(0)
    verdict = record(tmp_path, Reader(), body)
    assert (verdict.fidelity, verdict.gradients) == ("bit_exact", "bit_exact")


def penalty(model, x):
    x = x.clone().requires_grad_()
    out = model(x)
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return out.square().mean() + grad.square().mean()


def weight_decay(model, x):
    return squared(model, x) + 0.1 * sum(p.square().sum() for p in model.parameters())


def hooked(model, x):
    kept = []
    handle = model.inp.register_forward_hook(lambda module, args, out: kept.append(out))
    loss = squared(model, x) + kept[0].abs().mean()
    handle.remove()
    return loss


def slice_in_place(model, x):
    left, right = model(x)
    left[:, 0] = 0.0
    return (left + right).square().mean()


@pytest.mark.parametrize(
    ("model", "body", "reason"),
    [
        (Net, penalty, "create_graph"),
        (Net, weight_decay, "path outside the recorded calls"),
        (Net, hooked, "path outside the recorded calls"),
        (Halves, slice_in_place, ""),
    ],
    ids=["gradient penalty", "L2 term on weights", "hooked activations", "slice in place"],
)
def test_unavailable_and_why(tmp_path, model, body, reason):
    torch.manual_seed(0)
    verdict = record(tmp_path, model(), body)
    assert verdict.gradients == "unavailable"
    texts = " ".join(evidence.text for evidence in verdict.evidence)
    assert reason in texts
    assert "step_fn" in texts


def test_gradients_left_over_are_unavailable(tmp_path):
    torch.manual_seed(0)
    verdict = record(tmp_path, Net(), squared, keep=True)
    assert (verdict.fidelity, verdict.gradients) == ("bit_exact", "unavailable")
    texts = " ".join(evidence.text for evidence in verdict.evidence)
    assert "before" in texts or "left" in texts


def test_clipped_between_backward_and_capture_is_unavailable(tmp_path):
    def body(model, x):
        loss = squared(model, x)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        return loss.detach().requires_grad_()

    torch.manual_seed(0)
    verdict = record(tmp_path, Net(), body)
    assert verdict.gradients == "unavailable"


def test_a_step_function_makes_them_available_and_replays_the_loss(tmp_path):
    torch.manual_seed(0)
    verdict = record(tmp_path, Net(), step_loss, step_fn=step_loss)
    assert (verdict.fidelity, verdict.gradients) == ("bit_exact", "bit_exact")


def test_no_backward_is_none(tmp_path):
    model = Net().eval()
    with FlightRecorder(tmp_path, model=model) as recorder, recorder.step(), torch.no_grad():
        model(torch.full((2, 4), math.nan))
    verdict = replay.load(tmp_path).run()
    assert (verdict.status, verdict.fidelity, verdict.gradients) == (
        "reproduced", "bit_exact", "none",
    )  # fmt: skip


def test_what_the_incident_does_not_hold_is_said_and_no_verdict(tmp_path):
    class Local(nn.Module):
        def forward(self, x):
            return x.log()

    model = nn.Sequential(nn.Linear(4, 4), Local())
    with FlightRecorder(tmp_path, model=model) as recorder, recorder.step(), torch.no_grad():
        model(torch.full((2, 4), math.nan))
    with pytest.raises(CannotRebuildError, match="--model"):
        replay.load(tmp_path).run()


def test_a_backward_through_calls_before_the_update_is_unavailable(tmp_path):
    torch.manual_seed(0)
    made, judged = nn.Linear(3, 3), nn.Linear(3, 3)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (made, judged)]
    with FlightRecorder(tmp_path, model={"G": made, "D": judged}, optimizer=optimizers) as recorder:
        for number in range(2):
            with recorder.step():
                fake = made(torch.ones(2, 3))
                judged(fake.detach()).square().sum().backward()
                optimizers[1].step()
                optimizers[1].zero_grad()
                judged(fake).sum().backward()  # enters `fake`, a call of the segment before
                if number:
                    recorder.capture("look")
                optimizers[0].step()
                optimizers[0].zero_grad()
    verdict = replay.load(tmp_path).run()
    assert (verdict.fidelity, verdict.gradients) == ("bit_exact", "unavailable")
    assert "earlier segment" in " ".join(evidence.text for evidence in verdict.evidence)


def test_a_segment_without_any_call_is_unsupported_and_blames_nobody(tmp_path):
    model = Net()
    with FlightRecorder(tmp_path, model=model) as recorder, recorder.step():
        recorder.loss(math.nan)
    verdict = replay.load(tmp_path).bisect()
    assert (verdict.status, verdict.phase, verdict.confirmed) == ("unsupported", None, False)
    assert "step_fn" in verdict.evidence[-1].text
