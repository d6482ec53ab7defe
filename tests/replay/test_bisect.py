"""Is the right operator, module, line and sample named, and shown to be right?"""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from flightrec.types import Site
from replay.bisect import bisect
from replay.engine import Engine
from replay.episode import Episode, RecordedCall
from replay.history import Remembered
from replay.look import look
from tests.replay import failures
from tests.replay.failures.base import Case, rows
from tests.replay.lab import take

PUBLIC = Path(__file__).parents[1] / "quality" / "cases"
pytestmark = pytest.mark.filterwarnings("ignore:std\\(\\)")


def public(name):
    """Import one of the quality cases."""
    sys.path.insert(0, str(PUBLIC))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(PUBLIC))


def names(*, healthy):
    found = sorted(path.stem for path in PUBLIC.glob("c*.py"))
    return [each for each in found if (public(each).TRUTH["kind"] == "healthy") is healthy]


def examine(case, step, kind, **options):
    failure = take(case, step, **options)
    return bisect(failure.engine, failure.episode, failure.controls, kind)


@pytest.mark.parametrize("step_fn", [False, True])
@pytest.mark.parametrize("case", failures.CASES, ids=lambda case: case.name)
def test_culprit_is_named_and_confirmed(case, step_fn):
    found = examine(case, failures.FAILING, case.truth["kind"], step_fn=step_fn)
    assert found is not None
    assert {key: getattr(found, key) for key in case.truth} == case.truth, found
    assert found.confirmed, found.evidence


@pytest.mark.parametrize("name", names(healthy=False))
def test_public_case_is_solved(name):
    case = public(name)
    truth = case.TRUTH
    if truth["phase"] == "optimizer" or truth["kind"] == "exploding_grad":
        pytest.skip("no value of the replayed segment is bad")
    found = examine(case, truth["step"], truth["kind"])
    assert (found.kind, found.phase, found.module) == (
        truth["kind"],
        truth["phase"],
        truth["module"],
    )
    assert found.op in (truth["op"], *truth.get("alt_ops", ()))
    assert found.sample == truth["sample"]
    assert found.confirmed
    if found.op is not None:
        assert found.source.file == f"tests/quality/cases/{name}.py"


@pytest.mark.parametrize("kind", ["manual", "loss_spike"])
@pytest.mark.parametrize("name", names(healthy=True))
def test_healthy_step_has_no_culprit(name, kind):
    case = public(name)
    for step in (1, 4, 6):
        assert examine(case, step, kind) is None


# -- code outside every module ---------------------------------------------------------------


def plain():
    return nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2))


def targets(value):
    def data(generator, bad):
        y = torch.rand(8, 2, generator=generator)
        if bad:
            y[3, 1] = value
        return rows(generator, False), y

    return data


BAD_TARGET = Case(
    name="nan_target",
    model=plain,
    data=targets(float("nan")),
    loss=lambda model, batch: F.mse_loss(model(batch[0]), batch[1]),
)
LOG_OF_TARGET = Case(
    name="log_of_target",
    model=plain,
    data=targets(-1.0),
    loss=lambda model, batch: (model(batch[0]).mean() * 0 + batch[1].log()).mean(),
)
ROOT_OF_NOTHING = Case(
    name="root_mean_square_of_nothing",
    model=lambda: nn.Sequential(nn.Linear(6, 2, bias=False)),
    data=lambda generator, bad: rows(generator, False) * (0 if bad else 1),
    loss=lambda model, x: model(x).pow(2).mean().sqrt(),
)
LOG_BEFORE = Case(
    name="log_before_the_model",
    model=plain,
    data=lambda generator, bad: rows(generator, False).abs() * (0 if bad else 1),
    loss=lambda model, x: model(x.log()).mean(),
)


@pytest.mark.parametrize(
    ("case", "step_fn", "expected"),
    [
        (BAD_TARGET, False, ("data", None, 3)),
        (BAD_TARGET, True, ("data", None, 3)),
        (LOG_OF_TARGET, False, ("loss", None, None)),
        (LOG_OF_TARGET, True, ("loss", "aten.log.default", 3)),
        (ROOT_OF_NOTHING, False, ("backward", None, None)),
        (ROOT_OF_NOTHING, True, ("backward", "aten.div.Tensor", None)),
        (LOG_BEFORE, False, ("loss", None, None)),
        (LOG_BEFORE, True, ("loss", "aten.log.default", None)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_culprit_outside_every_module(case, step_fn, expected):
    found = examine(case, failures.FAILING, "nan", step_fn=step_fn)
    assert (found.phase, found.op, found.sample) == expected
    assert found.module is None


def test_exception_in_the_loss_code_is_told_from_what_was_recorded():
    case = Case(
        name="exception_outside",
        model=plain,
        data=lambda generator, bad: (rows(generator, False), bad),
        loss=lambda model, batch: model(batch[0]).mean() / (0 if batch[1] else 1.0),
    )
    failure = take(case, failures.FAILING)
    assert bisect(failure.engine, failure.episode, failure.controls, "nan") is not None
    recorded = {
        "type": "KeyError",
        "message": "'y'",
        "traceback": [
            {"file": str(Path(__file__)), "line": 1, "function": "step"},
            {"file": "/x/torch/nn/functional.py", "line": 1, "function": "mse_loss"},
        ],
    }
    found = bisect(failure.engine, with_exception(failure.episode, recorded), (), "exception")
    assert (found.kind, found.phase, found.module, found.op) == ("exception", "loss", None, None)
    assert found.source.line == 1


def with_exception(episode, exception):
    return replace(episode, exception=exception, loss=None)


# -- what is known of healthy steps ----------------------------------------------------------


class Gated(nn.Module):
    """A branch that does not show in the output once its weights are zero."""

    def __init__(self):
        super().__init__()
        self.branch, self.main = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.main(x) + self.branch(x).relu().sum() * 0.01


def gated(*, planted):
    model = Gated()
    if planted:
        with torch.no_grad():
            for each in model.branch.parameters():
                each.zero_()
    return model


def look_at(failure, step):
    values = {}
    engine = failure.engine
    seen = look(engine.run(failure.controls[-1], backward=False))
    for (_, leaf), flags in seen.get("output").items():
        site = Site(module="", kind="output", leaf=leaf)
        values[site] = flags._replace(absmax=flags.absmax * 1.5)
    return Remembered(step=step, values=values, moved=False)


def test_zeroed_branch_is_found_where_healthy_steps_are_known_to_differ():
    case = Case(
        name="gated",
        model=lambda: gated(planted=True),
        data=lambda generator, bad: rows(generator, False),
        training=False,
    )
    failure = take(case, failures.FAILING)
    given = (failure.engine, failure.episode, failure.controls, "manual")
    assert bisect(*given) is None
    history = [look_at(failure, control.step) for control in failure.controls]
    found = bisect(*given, history)
    assert (found.kind, found.phase, found.module) == ("zeroed", "parameter", "branch")
    assert found.confirmed


class Watched(nn.Module):
    """An attention branch that goes blank for short inputs, beside a path that goes on."""

    def __init__(self):
        super().__init__()
        self.branch, self.main = failures.zeros.Sparse(), nn.Linear(6, 2)

    def forward(self, x):
        return self.main(x + self.branch(x))


@pytest.mark.parametrize("kind", ["zeroed", "manual"])
def test_branch_that_goes_blank_is_found_though_the_output_does_not(kind):
    case = Case(
        name="watched",
        model=Watched,
        data=lambda generator, bad: torch.randn(4, 1 if bad else 7, 6, generator=generator) * 0.1,
    )
    found = examine(case, failures.FAILING, kind)
    assert (found.kind, found.phase, found.module) == ("zeroed", "forward", "branch")
    assert (found.op, found.confirmed) == ("aten.where.self", True)


def test_nan_in_a_weight_is_told_even_where_it_does_not_show():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused, self.main = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.main(x) + self.unused(x).nan_to_num(0.0).sum() * 0

    def planted():
        model = Hidden()
        with torch.no_grad():
            model.unused.weight[1, 1] = float("nan")
        return model

    case = Case(
        name="hidden",
        model=planted,
        data=lambda generator, bad: rows(generator, False),
        training=False,
    )
    found = examine(case, failures.FAILING, "manual", controls=0)
    assert (found.kind, found.phase, found.module) == ("nan", "parameter", "unused")


def test_two_models_are_told_apart_by_their_keys():
    models = {"encoder": nn.Linear(3, 3), "decoder": nn.Sequential(nn.Linear(3, 3))}
    with torch.no_grad():
        models["decoder"][0].weight[0, 0] = float("nan")
    engine = Engine(models)
    calls = [
        RecordedCall(
            index=index,
            root=root,
            module="",
            fresh=lambda: ((torch.ones(2, 3),), {}),
            rng=engine.generators.read(),
        )
        for index, root in enumerate(models)
    ]
    found = bisect(engine, Episode(step=0, calls=tuple(calls)), (), "nan")
    assert (found.module, found.phase) == ("decoder.0", "parameter")
