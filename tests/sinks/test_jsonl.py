"""One line of strict JSON per step, bounded, complete while the run goes on."""

import json
import math

import pytest

from flightrec.errors import StoreError, UsageError
from flightrec.sinks.jsonl import JsonLines
from flightrec.types import StepRecord
from tests.detectors.windows import bad_output, gradient, record


def lines(path):
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_each_step_is_one_line_at_once(tmp_path):
    path = tmp_path / "steps.jsonl"
    sink = JsonLines(path)
    sink.write(StepRecord(step=7, loss=math.nan, lr=0.1, scalars={"accuracy": math.inf}))
    (line,) = lines(path)
    assert (line["step"], line["lr"], line["grad_norm"]) == (7, 0.1, None)
    assert line["loss"] == {"$": "float", "v": "nan"}
    assert line["scalars"]["accuracy"] == {"$": "float", "v": "inf"}
    sink.close()
    sink.close()
    assert lines(path)[-1] == {"closed": True, "written": 1, "dropped": 0}


def test_statistics_are_written_where_asked_for(tmp_path):
    path = tmp_path / "steps.jsonl"
    sink = JsonLines(path, stats=True)
    sink.write(record(0, gradient(2.0), bad_output(nan=3)))
    sink.close()
    sites = lines(path)[0]["sites"]
    assert sites["fc:param_grad:weight#0"] == {"nan": 0, "inf": 0, "l2": 2, "numel": 8}
    assert sites[":output:#0"]["nan"] == 3


def test_what_is_over_the_limit_is_counted(tmp_path):
    path = tmp_path / "steps.jsonl"
    sink = JsonLines(path, limit=400)
    for step in range(100):
        sink.write(StepRecord(step=step))
    sink.close()
    found = lines(path)
    assert found[-1] == {"closed": True, "written": len(found) - 1, "dropped": 101 - len(found)}
    assert 0 < len(found) < 10


def test_an_existing_file_is_continued(tmp_path):
    path = tmp_path / "steps.jsonl"
    for _ in range(2):
        sink = JsonLines(path)
        sink.write(StepRecord(step=0))
        sink.close()
    assert len(lines(path)) == 4


def test_bad_settings_say_what_to_do(tmp_path):
    with pytest.raises(UsageError, match="jsonl needs a path"):
        JsonLines()
    with pytest.raises(UsageError, match=r"jsonl\.limit must be at least 1, got 0"):
        JsonLines(tmp_path / "a", limit=0)
    with pytest.raises(StoreError, match=r"cannot write .*No such file"):
        JsonLines(tmp_path / "missing" / "a")
