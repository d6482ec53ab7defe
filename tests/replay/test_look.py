"""What a run left behind, measured."""

from __future__ import annotations

import math

import torch

from replay.engine import Trace
from replay.look import classes_in, inner, look
from replay.oplog import OpLog, Visit
from replay.raised import Raised
from tests.replay.logs import NAN, Written


def test_stages_of_a_trace_are_measured():
    trace = Trace(
        outputs=((("", torch.tensor([1.0, math.nan])), ("[1]", torch.tensor([1, 2]))),),
        loss=torch.tensor(math.inf),
        gradients={":w": torch.zeros(2)},
        buffers={":b": torch.ones(2)},
    )
    seen = look(trace)
    assert seen.get("output").keys() == {(0, "")}
    assert seen.get("output")[0, ""].bad == {"nan"}
    assert seen.get("loss")[0, ""].bad == {"+inf"}
    assert seen.get("gradient")[0, ":w"].zero()
    assert not seen.get("buffer")[0, ":b"].bad
    assert seen.exception is None


def test_exception_is_text():
    fault = Raised(type="ValueError", message="no", phase="forward", module=None)
    assert look(Trace(outputs=(), exception=fault)).exception == "ValueError: no"


def test_inner_outputs_come_from_the_forward_pass():
    written = Written()
    log: OpLog = written.log
    for again in (False, True):
        visit = Visit(module="a", module_type="A", call=2, root_call=0, step=0, again=again)
        visit.outputs.append(("[0]", written.span("x", NAN)))
        log.visits.append(visit)
    assert inner(log) == {(2, "a:[0]"): NAN}


def test_bad_values_of_a_batch_are_told_by_path():
    batch = {"x": torch.tensor([math.nan, 1.0]), "y": [torch.zeros(2), torch.tensor([0])]}
    assert classes_in(batch) == {("['x']", "nan"), ("['y'][0]", "zero")}
