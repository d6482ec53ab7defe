"""Every detector: settings round-trip, pure, silent on healthy steps, quick."""

import ast
import functools
import inspect
import time
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from flightrec import protocols
from flightrec.detectors import config_of, from_config, select
from flightrec.errors import UsageError
from flightrec.registry import Registry
from flightrec.types import Finding, StepRecord, Window
from tests.detectors.healthy import RECIPES
from tests.detectors.windows import gradient, held, lost, output, record, rolling

DETECTORS = Registry("detectors").names()
LAYERS = [f"layers.{n}" for n in range(50)]


@pytest.fixture(params=DETECTORS)
def detector(request):
    """Each detector with its default settings."""
    return Registry("detectors").load(request.param)()


@functools.cache
def healthy(recipe, steps=300, seed=0, layers=8):
    """Steps of a healthy run with outputs, loss, gradients and buffers."""
    rng = np.random.default_rng(seed)
    losses, norms = recipe(rng)
    grows = np.exp(0.2 * rng.standard_normal((steps, 1 + layers)))
    return [
        record(
            step,
            output(grows[step, 0]),
            lost(losses[step]),
            *(
                gradient(norms[step] * size if np.isfinite(norms[step]) else 1.0, module=name)
                for name, size in zip(LAYERS[:layers], grows[step, 1:], strict=True)
            ),
            held("buffer"),
            loss=float(losses[step]),
            norm=float(norms[step]),
        )
        for step in range(steps)
    ]


def test_those_of_the_first_issue_are_there():
    expected = {"nonfinite", "zeroed", "zero_grad", "loss_spike", "exploding_grad"}
    assert expected <= set(DETECTORS)


def test_is_a_frozen_keyword_only_dataclass_with_a_word_on_each_field(detector):
    cls = type(detector)
    assert isinstance(detector, protocols.Detector)
    assert is_dataclass(cls)
    with pytest.raises((AttributeError, TypeError)):
        setattr(detector, fields(cls)[0].name, 1)
    kinds = {p.kind for p in inspect.signature(cls).parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY}
    (tree,) = [
        node
        for node in ast.parse(inspect.getsource(inspect.getmodule(cls))).body
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    ]
    for this, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(this, ast.AnnAssign) and "ClassVar" not in ast.unparse(this.annotation):
            assert isinstance(after, ast.Expr), f"{ast.unparse(this.target)} has no docstring"


def test_settings_round_trip(detector):
    config = config_of(detector)
    assert config["name"] in DETECTORS
    assert from_config(config) == detector
    assert config_of(from_config(config)) == config
    for name, value in config["configuration"].items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 1:
            changed = replace(detector, **{name: value + 1})
            assert from_config(config_of(changed)) == changed


def test_unknown_setting_lists_those_there_are(detector):
    config = config_of(detector)
    config["configuration"]["nonsense"] = 1
    with pytest.raises(UsageError, match=f"{config['name']} has no setting 'nonsense'; there are"):
        from_config(config)


def test_imports_no_torch(detector):
    source = inspect.getsource(inspect.getmodule(type(detector)))
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert not any(name.partition(".")[0] == "torch" for name in names)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_silent_on_healthy_steps(detector, recipe):
    for window in rolling(healthy(recipe)):
        assert list(detector.check(window)) == []


def test_an_empty_step_and_a_first_step_are_no_trouble(detector):
    for step in (StepRecord(step=0), healthy(RECIPES["language_model"], 1)[0]):
        for facts in ({}, {"backward": True, "update": True}):
            assert list(detector.check(Window(steps=(step,), facts=facts))) == []


def test_same_answer_twice_and_nothing_changed(detector):
    worst = record(
        9,
        output(0.0),
        lost(np.nan),
        gradient(0.0, nan=1),
        held("buffer", inf=1),
        held("param", nan=1),
        loss=1e9,
        norm=1e9,
    )
    for newest in (worst, replace(worst, loss=None, grad_norm=None)):
        *_, last = rolling([*healthy(RECIPES["language_model"], 60), newest])
        before = [step.stats_SK.copy() for step in last.steps]
        first = list(detector.check(last))
        assert list(detector.check(last)) == first
        assert all(isinstance(found, Finding) and found.text.isascii() for found in first)
        assert all(found.step == newest.step for found in first)
        for step, stats in zip(last.steps, before, strict=True):
            assert step.stats_SK.tobytes() == stats.tobytes()


def test_takes_microseconds(detector):
    windows = list(rolling(healthy(RECIPES["language_model"], layers=len(LAYERS))))[150:]
    best = min(_seconds(detector, windows) for _ in range(3))
    assert best / len(windows) < 300e-6


def _seconds(detector, windows):
    started = time.perf_counter()
    for window in windows:
        list(detector.check(window))
    return time.perf_counter() - started


def test_all_are_selected_by_default_in_order_of_precedence():
    chosen = select()
    assert {config_of(one)["name"] for one in chosen} == set(DETECTORS)
    assert config_of(chosen[0])["name"] == "nonfinite"
