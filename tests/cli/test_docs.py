"""The pages about the command line, SQL and errors say what the program does."""

import importlib.util
import re
from pathlib import Path

import pytest

from flightrec import errors
from flightrec.registry import Registry
from flightrec.stores import open_store
from flightrec.testing.captures import make_capture

ROOT = Path(__file__).parents[2]


def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_fresh():
    for path, text in reference().pages().items():
        assert path.read_text(encoding="utf-8") == text, "run `python scripts/reference.py`"


@pytest.mark.parametrize("name", Registry("cli").names())
def test_every_command_is_on_the_page(name):
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert re.search(rf"^## flightrec {name}\b", page, re.MULTILINE)


def all_errors(base=errors.FlightrecError):
    return [base, *(found for sub in base.__subclasses__() for found in all_errors(sub))]


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.__name__)
def test_every_error_has_a_heading_its_type_and_its_exit_code(error):
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    _, _, rest = page.partition(f"\n## {error.slug}\n")
    section = rest.partition("\n## ")[0]
    assert f"`{error.__name__}`" in section
    assert f"exit code {error.exit_code}." in section


def test_no_heading_is_left_over():
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    slugs = [error.slug for error in all_errors()]
    assert sorted(re.findall(r"^## (.+)$", page, re.MULTILINE)) == sorted(slugs)


def examples():
    page = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    return re.findall(r"```sql\n(.+?)```", page, re.DOTALL)


@pytest.mark.parametrize("statement", examples(), ids=lambda text: " ".join(text.split())[:40])
def test_the_examples_of_sql_run(statement, tmp_path):
    store = open_store(tmp_path)
    store.put(make_capture(0))
    store.put(make_capture(0, run="run-b"))
    with store.connect() as connection:
        connection.execute(statement).fetchall()


def test_there_are_examples():
    assert len(examples()) >= 5
