"""Settings: what is refused, in which words, and what the manifest gets."""

import json
from dataclasses import fields

import pytest

from flightrec.config import WHOLE_NUMBERS, WORDS, Settings
from flightrec.errors import UsageError


class Quiet:
    """Looks like a detector and like a sink."""

    def check(self, window):
        return iter(())

    def write(self, record):
        pass

    def close(self):
        pass


def speak(incident):
    """Stand for a user's callable."""


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8", None])
@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_whole_numbers_name_the_option_and_the_value(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be .*at least 1, got {value!r}"):
        Settings(**{name: value})


@pytest.mark.parametrize("name", [*WORDS, "on_incident"])
def test_words_list_what_is_allowed(name):
    allowed = "continue" if name == "on_incident" else WORDS[name][0]
    with pytest.raises(UsageError, match=rf"{name} must be one of .*{allowed}.*; got 'sometimes'"):
        Settings(**{name: "sometimes"})
    with pytest.raises(UsageError, match=rf"{name} .* got 3"):
        Settings(**{name: 3})


@pytest.mark.parametrize("value", [0, -0.1, 1.5, float("nan"), float("inf"), True, "2%"])
def test_share_is_above_zero_and_at_most_one(value):
    with pytest.raises(UsageError, match="max_overhead must be above 0 and at most 1, got"):
        Settings(max_overhead=value)


@pytest.mark.parametrize("value", ["", "  ", 3])
def test_run_is_a_name(value):
    with pytest.raises(UsageError, match="run must be a name"):
        Settings(run=value)


def test_code_is_a_bool():
    with pytest.raises(UsageError, match="code must be True or False, got 1"):
        Settings(code=1)


@pytest.mark.parametrize("value", ["nonfinite", 3, [3], [Quiet], [""], ["-"]])
def test_detectors_are_a_list_of_names_or_objects(value):
    with pytest.raises(UsageError, match="detectors"):
        Settings(detectors=value)


def test_names_and_objects_are_taken():
    settings = Settings(detectors=["-loss_spike", Quiet()], sinks=["jsonl", Quiet()])
    assert settings.to_json()["detectors"][0] == "-loss_spike"
    assert settings.to_json()["detectors"][1].endswith(":Quiet")


def test_unknown_option_lists_those_there_are():
    with pytest.raises(UsageError, match=r"'ring_stpes'; there are: .*ring_steps"):
        Settings.of(ring_stpes=3)
    assert Settings.of(ring_steps=3) == Settings(ring_steps=3)


def test_settings_are_frozen_and_keyword_only():
    with pytest.raises(AttributeError):
        Settings().ring_steps = 3
    with pytest.raises(TypeError):
        Settings("name")


def test_manifest_gets_every_setting_as_json():
    plain = Settings(on_incident=speak).to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) == {field.name for field in fields(Settings)}
    assert plain["on_incident"].endswith(":speak")
    assert plain["ring_steps"] == 8
