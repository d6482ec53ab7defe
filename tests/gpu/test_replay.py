"""Replay on a GPU and between a GPU and the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import replay
from flightrec import FlightRecorder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Net(nn.Module):
    """Holds a device and draws on it, which a replay elsewhere has to follow."""

    def __init__(self, device):
        super().__init__()
        self.device = torch.device(device)
        self.body = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.GELU())
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        offset = torch.ones(len(x), 1, device=self.device)
        return self.head(self.drop(self.body(x))) + offset


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Train on a device and return the store, its last step captured."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(device, *, autocast=False):
        torch.manual_seed(0)
        model = Net(device).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        store = str(tmp_path / "store")
        with FlightRecorder(store, model=model, optimizer=optimizer) as recorder:
            for number in range(3):
                x = torch.randn(32, 64, device=device)
                with recorder.step(x):
                    with torch.autocast(device, torch.bfloat16, enabled=autocast):
                        loss = model(x).float().square().mean()
                    loss.backward()
                    if number == 2:
                        recorder.capture("look")
                    optimizer.step()
                    optimizer.zero_grad()
        return store

    return run


@pytest.mark.parametrize("autocast", [False, True])
def test_exact_on_the_same_device(record, autocast):
    verdict = replay.load(record("cuda", autocast=autocast), device="cuda").run()
    assert (verdict.fidelity, verdict.gradients, verdict.max_ulp) == ("bit_exact", "bit_exact", 0)


def test_from_gpu_to_cpu_without_chance(record, monkeypatch):
    monkeypatch.setattr(nn.Dropout, "forward", lambda _self, x: x)
    replayer = replay.load(record("cuda"), device="cpu")
    assert replayer.run().fidelity in ("bit_exact", "close")
    assert any("replayed on the CPU" in note for note in replayer.notes)


def test_from_cpu_to_gpu_without_chance(record, monkeypatch):
    monkeypatch.setattr(nn.Dropout, "forward", lambda _self, x: x)
    assert replay.load(record("cpu"), device="cuda").run().fidelity in ("bit_exact", "close")


def test_bisect_on_a_gpu(record, tmp_path):
    torch.manual_seed(0)
    model = Net("cuda").to("cuda").eval()
    with FlightRecorder(str(tmp_path / "bad"), model=model) as recorder:
        for number in range(4):
            x = torch.randn(8, 64, device="cuda")
            if number == 3:
                x[5, 2] = float("nan")
            with torch.no_grad(), recorder.step(x):
                model(x)
    found = replay.load(str(tmp_path / "bad"), device="cuda").bisect()
    assert (found.status, found.phase, found.sample) == ("reproduced", "data", 5)
