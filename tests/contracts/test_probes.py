"""Every probe: the run is the same to the bit, whatever its listener does, and it leaves."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

from flightrec.probes.backward import BackwardProbe
from flightrec.probes.forward import ForwardProbe, Members
from flightrec.probes.optimizer import OptimizerProbe


class Listener:
    """Takes every message; fails on each where it is told to."""

    def __init__(self, *, fails):
        self.fails, self.heard, self.watch = fails, [], None

    def __getattr__(self, name):
        def told(*args, **kwargs):
            self.heard.append(name)
            if name == "call_closed" and self.watch is not None:
                self.watch.watch(0, [("", args[0])])
            if self.fails:
                raise ZeroDivisionError(name)

        return told


def forward(model, listener, faults):
    return [ForwardProbe(Members({"": model}), listener, faults)]


def backward(model, listener, faults):
    probe = listener.watch = BackwardProbe(listener, faults)
    return [ForwardProbe(Members({"": model}), listener, faults), probe]


def optimizer(model, listener, faults):
    owned = {id(parameter) for parameter in model.parameters()}
    return [OptimizerProbe(listener, owned.__contains__, faults)]


EXPECTED = {
    forward: {"call_opened", "call_closed"},
    backward: {"call_closed", "backward_begins", "gradient_arrived", "backward_ended"},
    optimizer: {"update_begins", "update_ended"},
}


def hooks():
    return [
        len(registry)
        for registry in (
            torch_module._global_forward_pre_hooks,
            torch_module._global_forward_hooks,
            torch_optimizer._global_optimizer_pre_hooks,
            torch_optimizer._global_optimizer_post_hooks,
        )
    ]


def run(make=None, *, fails=False):
    """Train for three steps under the probes of `make`; return everything that is left."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    updates = torch.optim.Adam(model.parameters())
    listener, faults = Listener(fails=fails), Counter()
    probes = make(model, listener, faults) if make else []
    handles = [handle for probe in probes for handle in probe.attach()]
    for _ in range(3):
        for probe in probes:
            probe.reset()
        updates.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        updates.step()
    for handle in handles:
        handle.remove()
    return [*model.state_dict().values(), torch.get_rng_state()], listener, faults


@pytest.mark.parametrize("make", list(EXPECTED))
@pytest.mark.parametrize("fails", [False, True])
def test_contract(make, fails, monkeypatch):
    if fails:
        monkeypatch.delenv("FLIGHTREC_STRICT", raising=False)
    before = hooks()
    plain, _, _ = run()
    probed, listener, faults = run(make, fails=fails)
    assert all(map(torch.equal, plain, probed))
    assert hooks() == before
    if fails:
        assert sum(faults.values())
    else:
        assert set(listener.heard) >= EXPECTED[make]
        assert not faults
