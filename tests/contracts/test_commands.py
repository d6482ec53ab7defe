"""Every command: help, an example, options that all have, and no more than 40 lines."""

import inspect
import re
import shlex
from pathlib import Path

import click
import pytest

from flightrec.cli import flightrec
from flightrec.registry import Registry

COMMANDS = Registry("cli").names()
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=COMMANDS)
def name(request):
    """Each command's name."""
    return request.param


@pytest.fixture
def command(name):
    """Each command."""
    return Registry("cli").load(name)


def test_those_of_the_first_issue_are_there():
    expected = {"ls", "show", "query", "replay", "bisect", "export", "prune", "doctor"}
    assert expected <= set(COMMANDS)


def test_is_a_click_command_named_as_its_file(name, command):
    assert isinstance(command, click.Command)
    assert command.name == name
    assert flightrec.get_command(click.Context(flightrec), name) is command


def test_has_help_of_one_short_line_and_more(command):
    first = command.help.splitlines()[0]
    assert first.endswith(".")
    assert len(first) <= 45
    assert command.get_short_help_str(limit=60) == first
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_has_an_example_that_parses(name, command):
    (line,) = re.findall(r"Example:\n\s+(flightrec .+)", command.help)
    words = shlex.split(line)
    assert words[:2] == ["flightrec", name]
    command.make_context(name, words[2:])


def test_every_command_answers_in_json(command):
    assert "--json" in [name for parameter in command.params for name in parameter.opts]


def test_is_on_the_page(name):
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert re.search(rf"^## flightrec {name}\b", page, re.MULTILINE)


def test_is_at_most_forty_lines(command):
    source = inspect.getsource(inspect.unwrap(command.callback))
    assert len(source.splitlines()) <= 40


def test_help_needs_no_torch(name):
    source = (ROOT / "flightrec" / "cli" / f"{name}.py").read_text(encoding="utf-8")
    assert not re.search(
        r"^(import|from) (torch|replay|h5py|flightrec\.incident)\b", source, re.MULTILINE
    )


def test_help_is_printed(name, capsys):
    with pytest.raises(click.exceptions.Exit):
        flightrec.make_context("flightrec", [name, "--help"]).command.invoke(
            flightrec.make_context("flightrec", [name, "--help"])
        )
    assert f"Usage: flightrec {name}" in capsys.readouterr().out
