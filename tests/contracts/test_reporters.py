"""Every reporter renders every verdict, and hands on nothing that a terminal would obey."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import pytest

from flightrec.registry import Registry
from flightrec.types import Evidence, Fidelity, GradientFidelity, Phase, SourceLine, Status, Verdict

REPORTERS = Registry("reporters").names()
PLAIN = Verdict(
    incident_id="20260711T030000-7f3a",
    status="reproduced",
    fidelity="bit_exact",
    gradients="none",
    kind="nan",
    step=41316,
    noticed_step=41317,
)
FULL = replace(
    PLAIN,
    gradients="unavailable",
    max_ulp=3,
    phase="backward",
    module="encoder.layers.3.attn",
    module_type="MultiheadAttention",
    call=1,
    root_call=0,
    op="aten.sqrt_backward.default",
    backward_of="aten.sqrt.default",
    source=SourceLine(file="model.py", line=88, code="s = torch.sqrt(v)"),
    sample=17,
    index=(17, 3),
    confirmed=True,
    evidence=(
        Evidence(kind="culprit", text="inputs were finite", value=math.inf),
        Evidence(kind="loss", text="the loss was NaN", value=math.nan),
    ),
    first_divergence="encoder:output:[0]#0",
    forward_passes=2,
    seconds=0.4,
)
INCIDENT = SimpleNamespace(manifest={"reason": "loss is nan"}, id=PLAIN.incident_id)


def rendered(name, verdict, incident=INCIDENT):
    out = io.StringIO()
    Registry("reporters").load(name)(verdict, incident, out)
    return out.getvalue()


def test_text_and_json_are_there():
    assert {"text", "json"} <= set(REPORTERS)


@pytest.mark.parametrize("name", REPORTERS)
@pytest.mark.parametrize("status", get_args(Status))
@pytest.mark.parametrize("verdict", [PLAIN, FULL], ids=["plain", "full"])
def test_every_status(name, status, verdict):
    text = rendered(name, replace(verdict, status=status))
    assert verdict.incident_id in text
    assert text.endswith("\n")


@pytest.mark.parametrize("name", REPORTERS)
@pytest.mark.parametrize("phase", get_args(Phase))
def test_every_phase(name, phase):
    assert rendered(name, replace(FULL, phase=phase))


@pytest.mark.parametrize("name", REPORTERS)
@pytest.mark.parametrize("gradients", get_args(GradientFidelity))
@pytest.mark.parametrize("fidelity", get_args(Fidelity))
def test_every_fidelity(name, fidelity, gradients):
    assert rendered(name, replace(FULL, fidelity=fidelity, gradients=gradients))


@pytest.mark.parametrize("name", REPORTERS)
def test_text_of_an_incident_cannot_drive_a_terminal(name):
    evil = "\x1b]0;owned\x07\r\x9b31m\u202e\nfake line"
    verdict = replace(
        FULL,
        module=evil,
        kind=evil,
        source=SourceLine(file=evil, line=1, code=evil),
        evidence=(Evidence(kind=evil, text=evil),),
        first_divergence=evil,
    )
    incident = SimpleNamespace(manifest={"reason": evil}, id=PLAIN.incident_id)
    text = rendered(name, verdict, incident)
    assert not set("\x1b\x07\r\x9b\u202e") & set(text)
    assert "fake line" not in [line.strip() for line in text.splitlines()]


def test_json_has_the_fields_in_their_order():
    found = json.loads(rendered("json", FULL), parse_constant=pytest.fail)
    assert list(found) == [
        *("incident_id", "status", "fidelity", "gradients", "max_ulp", "kind", "phase", "step"),
        *("noticed_step", "rank", "module", "module_type", "call", "root_call", "op"),
        *("backward_of", "source", "sample", "index", "confirmed", "evidence"),
        *("first_divergence", "forward_passes", "seconds"),
    ]
    assert found["source"] == {"file": "model.py", "line": 88, "code": "s = torch.sqrt(v)"}
    assert found["index"] == [17, 3]
    assert [item["value"] for item in found["evidence"]] == ["inf", "nan"]


def test_text_says_where_and_what_to_do():
    text = rendered("text", FULL)
    for part in (
        "encoder.layers.3.attn (MultiheadAttention), call 1",
        "aten.sqrt_backward.default, the gradient of aten.sqrt.default",
        "model.py:88",
        "s = torch.sqrt(v)",
        "17 of the batch",
        "in step 41316 already",
        "equal to the bit",
        "gradients cannot be compared",
        "inputs were finite",
        "loss is nan",
        f"flightrec export {PLAIN.incident_id}",
    ):
        assert part in text, part


def test_commands_name_the_file_where_there_is_one(tmp_path, monkeypatch):
    path = tmp_path / "my store" / "x.h5"
    incident = SimpleNamespace(manifest={}, id="x", path=path)
    assert f"flightrec bisect '{path}'" in rendered("text", PLAIN, incident)
    monkeypatch.chdir(tmp_path)
    assert "flightrec bisect 'my store/x.h5'" in rendered("text", PLAIN, incident)


def test_commands_name_the_store_where_it_lies_in_one(tmp_path, monkeypatch):
    monkeypatch.delenv("FLIGHTREC_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my store" / "incidents" / "date=2026-07-11"
    folder.mkdir(parents=True)
    path = folder / "01a22d12-e713-770d-be80-04da38ef0d6d.h5"
    path.touch()
    incident = SimpleNamespace(manifest={}, id=path.stem, path=path)
    assert "bisect 01a22d12-e713 --store 'my store'   #" in rendered("text", PLAIN, incident)
    (folder / "01a22d12-e713-770e-be80-04da38ef0d6d.h5").touch()
    assert "bisect 01a22d12-e713-770d --store" in rendered("text", PLAIN, incident)
    monkeypatch.setenv("FLIGHTREC_STORE", str(tmp_path / "my store"))
    assert "bisect 01a22d12-e713-770d   #" in rendered("text", PLAIN, incident)


def test_what_was_shown_is_said_and_no_more():
    def sure(**changes):
        return rendered("text", replace(FULL, **changes)).partition("confirmed ")[2].split("\n")[0]

    def seen(kind):
        return (Evidence(kind=kind, text="...", value=True),)

    assert sure(evidence=seen("isolated")) == "yes, run alone it does it again"
    for phase in ("data", "parameter"):
        found = sure(phase=phase, op=None, evidence=seen("healed"))
        assert found == "yes, with it made sound the step is healthy"
    assert sure(evidence=seen("repeated")) == "yes, the step run once more does it again"
    assert sure(confirmed=False) == "no"
    assert "cures" not in rendered("text", FULL)
    assert "cures" in rendered("text", replace(FULL, evidence=seen("sample")))


def test_a_scalar_has_no_element():
    assert "element" not in rendered("text", replace(FULL, index=()))


def test_long_messages_are_cut_in_text_only():
    evidence = (Evidence(kind="exception", text="x\ny " * 500),)
    incident = SimpleNamespace(manifest={"reason": "z" * 5000}, id=PLAIN.incident_id)
    verdict = replace(FULL, evidence=evidence)
    assert max(map(len, rendered("text", verdict, incident).splitlines())) < 330
    assert json.loads(rendered("json", verdict))["evidence"][0]["text"] == evidence[0].text


def test_nan_against_a_number_has_no_distance():
    text = rendered("text", replace(FULL, max_ulp=2**63 - 1))
    assert "a finite value against NaN or Inf" in text
    assert "ULP" not in text


def test_a_search_is_not_advised_twice():
    searched = (Evidence(kind="search", text="no single value was found"),)
    assert "flightrec bisect" in rendered("text", PLAIN)
    assert "flightrec show" in rendered("text", replace(PLAIN, evidence=searched))
    assert "flightrec show" in rendered("text", replace(PLAIN, status="diverged"))
