"""The JSON of a verdict, field by field."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from flightrec.types import Evidence, Verdict
from replay.verdict import FIELDS, exit_code, to_json

VERDICT = Verdict(
    incident_id="x",
    status="reproduced",
    fidelity="bit_exact",
    gradients="none",
    kind="nan",
    step=1,
    noticed_step=2,
)


def test_every_field_is_written():
    assert sorted(FIELDS) == sorted(field.name for field in fields(Verdict))
    assert list(to_json(VERDICT)) == list(FIELDS)


def test_exit_codes():
    codes = {"reproduced": 0, "not_reproduced": 1, "diverged": 1, "unsupported": 3}
    assert {status: exit_code(replace(VERDICT, status=status)) for status in codes} == codes


def test_only_plain_values_are_taken():
    wrong = replace(VERDICT, evidence=(Evidence(kind="k", text="t", value=object()),))
    with pytest.raises(TypeError, match="object"):
        to_json(wrong)
