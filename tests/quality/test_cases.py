"""Is the right module, operator and sample named for failures that people reported?"""

from __future__ import annotations

import pytest

from tests.quality import expected_failures, harness

CASES = harness.names()
CONTROLS = [name for name in CASES if harness.truth(name)["kind"] == "healthy"]
FAILURES = [name for name in CASES if name not in CONTROLS]
REQUIRED_PHASES = ("data", "parameter", "forward")


@pytest.fixture(scope="module")
def lab(request, tmp_path_factory):
    """Return the outcomes of the cases that this session asks about."""
    asked = [
        item.callspec.params["case"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    started = harness.Lab(tmp_path_factory.mktemp("cases"), dict.fromkeys(asked))
    yield started
    started.close()


def listed(names, reasons):
    """Return parameters in which the expected failures are marked as such."""
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=reasons[name], strict=True))
        if name in reasons
        else name
        for name in names
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_run_is_the_same_with_and_without_recorder(lab, case):
    outcome = lab.outcome(case)
    assert outcome.recorded["losses"] == outcome.plain["losses"]
    assert outcome.recorded["error"] == outcome.plain["error"]


@pytest.mark.parametrize("case", CONTROLS)
def test_healthy_run_has_no_incident(lab, case):
    assert lab.outcome(case).recorded["incidents"] == []


@pytest.mark.parametrize("case", listed(FAILURES, expected_failures.REPLAY))
def test_replay_is_bit_exact(lab, case):
    outcome = lab.outcome(case)
    assert outcome.recorded["incidents"], outcome.words
    assert outcome.verdict, outcome.words
    assert outcome.verdict["fidelity"] == "bit_exact", outcome.verdict
    assert outcome.verdict["gradients"] in ("bit_exact", "unavailable", "none"), outcome.verdict
    assert outcome.verdict["max_ulp"] == 0


@pytest.mark.parametrize("case", listed(FAILURES, expected_failures.CULPRIT))
def test_culprit_is_named(lab, case):
    outcome = lab.outcome(case)
    known = harness.truth(case)
    said = outcome.verdict
    assert said, outcome.words
    assert (said["kind"], said["phase"]) == (known["kind"], known["phase"]), said
    assert said["status"] == "reproduced"
    assert outcome.exit_code == 0, outcome.words
    if not known.get("fuzzy_step"):
        assert said["step"] == known["step"]
    assert said["noticed_step"] >= said["step"]
    if known["module"] is not None or known["phase"] == "data":
        assert said["module"] == known["module"], said
    if known["op"] is not None or known["phase"] in ("data", "parameter"):
        assert said["op"] in (known["op"], *known.get("alt_ops", ())), said
    if known["sample"] is not None:
        assert said["sample"] == known["sample"], said


@pytest.mark.parametrize("case", FAILURES)
def test_operator_that_is_blamed_is_proved_guilty(lab, case):
    said = lab.outcome(case).verdict
    if case in expected_failures.CULPRIT or said.get("op") is None or said["kind"] == "exception":
        pytest.skip("no operator is to blame by its values")
    assert said["confirmed"], said
    assert said["evidence"]


def test_only_what_lies_beyond_the_forward_pass_may_be_missing():
    for name in expected_failures.CULPRIT:
        assert harness.truth(name)["phase"] not in REQUIRED_PHASES, name
    assert {*expected_failures.CULPRIT, *expected_failures.REPLAY} <= set(FAILURES)
