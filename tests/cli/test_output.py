"""Text made harmless, and rows in three styles."""

import csv
import io
import json
import unicodedata
from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightrec.cli import _output
from flightrec.cli._output import cell, json_value, plain, print_rows, print_table, size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words", "plain words"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("a\nb\rc\td", "a\\nb\\x0dc d"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("\u2066\u200b\ufeff", "\\u2066\\u200b\\ufeff"),
        ("\u2028line", "\\u2028line"),
        ("half \ud800", "half \\ud800"),
        ("\U000e0041", "\\ue0041"),
        ("[bold]markup[/bold] :smile:", "[bold]markup[/bold] :smile:"),
        ("größe 数", "größe 数"),
    ],
)
def test_text_that_a_terminal_would_obey_is_shown(text, expected):
    assert plain(text) == expected


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text):
    shown = plain(text)
    assert not {unicodedata.category(letter) for letter in shown} & _output.UNPRINTABLE
    assert len(shown.splitlines()) <= 1


ROWS = [
    {"name": "a", "n": 1, "x": 0.1, "when": datetime(2026, 3, 1, 12), "list": [1, 2], "none": None},
    {"name": "b,\x1b", "n": 20, "x": float("nan"), "when": None, "list": None, "none": None},
]


def test_json_is_valid_whatever_the_numbers(capsys):
    print_rows(ROWS, ["name", "n", "x", "when", "list", "none"], "json")
    found = json.loads(capsys.readouterr().out)
    assert found[0] == {
        "name": "a",
        "n": 1,
        "x": 0.1,
        "when": "2026-03-01T12:00:00",
        "list": [1, 2],
        "none": None,
    }
    assert found[1]["x"] == "nan"


def test_csv_can_be_read_back(capsys):
    print_rows(ROWS, ["name", "x", "list", "none"], "csv")
    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert found == [
        {"name": "a", "x": "0.1", "list": "[1, 2]", "none": ""},
        {"name": "b,\\x1b", "x": "nan", "list": "", "none": ""},
    ]


def test_a_table_in_a_pipe_is_never_cut(capsys):
    long = "module." * 60
    print_table([{"where": long, "n": 1}], ["where", "n"], shrink=("where",))
    assert long in capsys.readouterr().out


def test_markup_is_printed_as_it_is(capsys):
    print_table([{"a": "[red]x[/red]"}], ["a"])
    assert "[red]x[/red]" in capsys.readouterr().out


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 40 columns."""
    original = _output.console

    def made():
        console = original()
        console.width = 40
        console.soft_wrap = False
        return console

    monkeypatch.setattr(_output, "console", made)


def test_a_narrow_terminal_cuts_the_beginning_of_names(narrow, capsys):
    rows = [{"id": "01234567", "where": "encoder.layers.11.self_attn.out_proj", "n": 12345678}]
    print_table(rows, ["id", "where", "n"], shrink=("where",))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 40
    assert "..." in out
    assert "out_proj" in out
    assert "12345678" in out


def test_too_many_columns_become_lines(narrow, capsys):
    row = {f"column_{n}": "value\nsecond" for n in range(9)}
    print_table([row, row], list(row))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "column_0  value"
    assert lines[1] == "          second"
    assert lines.count("column_8  value") == 2


def test_cells_have_several_lines(narrow, capsys):
    print_table([{"a": "one\ntwo\x1b"}], ["a"])
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[2:]] == [
        "one",
        "two\\x1b",
    ]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (3062, "3.1 kB"), (45_600_000, "45.6 MB")],
)
def test_sizes_for_people(count, expected):
    assert size(count) == expected


def test_values_as_cells_and_as_json():
    assert cell(True) == "True"
    assert cell(0.1234567891) == "0.123457"
    assert cell(float("inf")) == "inf"
    assert cell(date(2026, 3, 1)) == "2026-03-01"
    assert json_value({1: (float("-inf"), b"x")}) == {"1": ["-inf", "b'x'"]}
