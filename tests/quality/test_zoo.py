"""Are models that nobody here wrote rebuilt to the bit, and faults planted in them named?"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from tests.quality import harness

pytestmark = pytest.mark.zoo

PACKAGES = ("timm", "torchvision", "transformers", "diffusers", "peft")
MISSING = [name for name in PACKAGES if find_spec(name) is None]
if MISSING:
    pytest.skip(f"the extra [zoo] is not installed: {MISSING}", allow_module_level=True)

from tests.quality.zoo import MODELS  # noqa: E402 - only where its libraries are installed


def examine(name, folder):
    """Record a model's four incidents in one process, replay them in another."""
    store = str(folder / name)
    recording = harness.start(folder, "-m", "tests.quality.record_zoo", name, store)
    assert recording.returncode == 0, recording.stderr
    recorded = json.loads(recording.stdout.splitlines()[-1])
    ids = [f"{label}={key}" for label, key in recorded["incidents"].items() if key]
    stranger = folder / "stranger"
    replaying = harness.start(stranger, "-m", "tests.quality.replay_zoo", store, *ids)
    assert replaying.returncode == 0, replaying.stderr
    replayed = json.loads(replaying.stdout.splitlines()[-1])
    return recorded, replayed


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """Return, by model, what was recorded and what was replayed; two models at a time."""
    folder = tmp_path_factory.mktemp("zoo")
    asked = [
        item.callspec.params["model"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {name: pool.submit(examine, name, folder) for name in dict.fromkeys(asked)}


@pytest.fixture(params=MODELS)
def model(request):
    """Return one model's name after another."""
    return request.param


def test_healthy_step_comes_back_to_the_bit(outcomes, model):
    recorded, replayed = outcomes[model].result()
    verdict = replayed["verdicts"]["healthy"]
    assert (verdict["fidelity"], verdict["gradients"]) == ("bit_exact", "bit_exact"), verdict
    assert replayed["gradients"] == recorded["gradients"]
    assert recorded["gradients"]


def test_weight_with_a_nan_is_named(outcomes, model):
    verdict = outcomes[model].result()[1]["verdicts"]["nan"]
    named = (verdict["kind"], verdict["phase"], verdict["module"], verdict["op"])
    assert named == ("nan", "parameter", MODELS[model].nan, None), verdict
    assert verdict["fidelity"] == "bit_exact"


def test_zeroed_layer_is_named(outcomes, model):
    verdict = outcomes[model].result()[1]["verdicts"]["zero"]
    named = (verdict["kind"], verdict["phase"], verdict["module"])
    assert named == ("zeroed", "parameter", MODELS[model].zero), verdict
    assert verdict["fidelity"] == "bit_exact"


def test_overflow_is_named(outcomes, model):
    verdict = outcomes[model].result()[1]["verdicts"]["overflow"]
    assert verdict["kind"] in ("nan", "inf"), verdict
    assert (verdict["phase"], verdict["module"]) == ("forward", MODELS[model].overflow), verdict
    assert verdict["op"].rsplit(".", 1)[0] == MODELS[model].op, verdict
    assert verdict["fidelity"] == "bit_exact"
