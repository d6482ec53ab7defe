"""Write the parts of docs/ that are made from the program: docs/cli.md and tables of docs/sql.md.

python scripts/reference.py           write them
python scripts/reference.py --check   exit with 1 where one is stale
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from flightrec.catalog.schema import derived_views, tables  # noqa: E402 - the line above
from flightrec.cli import flightrec  # noqa: E402 - the same
from flightrec.registry import Registry  # noqa: E402 - the same

START = "<!-- columns: made by scripts/reference.py from schemas/catalog.sql -->"
END = "<!-- end of columns -->"

CLI_HEAD = """# Command line

Made by `scripts/reference.py` from the help of each command; do not edit.

"""


def cli_page() -> str:
    """Return docs/cli.md."""
    parts = [CLI_HEAD + _help_text(flightrec)]
    context = click.Context(flightrec)
    for name in Registry("cli").names():
        command = flightrec.get_command(context, name)
        if command is not None:
            parts.append(_command(name, command))
    return "\n".join(parts)


def _command(name: str, command: click.Command) -> str:
    arguments = [p.make_metavar(click.Context(command)) for p in _arguments(command)]
    lines = [f"## flightrec {' '.join([name, *arguments])}", "", _help_text(command)]
    lines += ["| option | meaning |", "|---|---|"]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            lines.append(f"| {_names(parameter)} | {_meaning(parameter)} |")
    return "\n".join(lines) + "\n"


def _arguments(command: click.Command) -> list[click.Argument]:
    return [each for each in command.params if isinstance(each, click.Argument)]


def _names(option: click.Option) -> str:
    metavar = "" if option.is_flag else f" {_metavar(option)}"
    return ", ".join(f"`{name}{metavar}`" for name in option.opts)


def _metavar(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    choices = getattr(option.type, "choices", None)
    return "/".join(choices) if choices else option.type.name.upper()


def _meaning(option: click.Option) -> str:
    meaning = " ".join((option.help or "").split())
    if option.show_default:
        meaning += f" [default: {option.default}]"
    return meaning.replace("|", "\\|")


def _help_text(command: click.Command) -> str:
    """Return a command's help as Markdown; what comes after a backspace is code."""
    lines: list[str] = []
    code = False
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        code = paragraph.startswith("\b")
        if code:
            title, _, body = paragraph.removeprefix("\b\n").partition("\n")
            lines += [title, "", "```", inspect.cleandoc(body), "```", ""]
        else:
            lines += [" ".join(paragraph.split()), ""]
    return "\n".join(lines)


def columns() -> str:
    """Return the tables of columns for docs/sql.md."""
    parts = [START]
    for table in tables().values():
        parts.append(f"\n### {table.name}\n\n{table.meaning}\n")
        parts.append("| column | type | meaning |\n|---|---|---|")
        parts += [
            f"| `{each.name}` | {each.type} | {each.meaning} |"
            for each in table.columns
            if "(column of the view" not in each.meaning
        ]
    for name, (meaning, described) in derived_views().items():
        parts.append(f"\n### {name}\n\n{meaning}\n\n| column | meaning |\n|---|---|")
        parts += [f"| `{column}` | {text} |" for column, text in described.items()]
    return "\n".join([*parts, "", END])


def sql_page(current: str) -> str:
    """Return docs/sql.md with its tables made anew."""
    head, _, rest = current.partition(START)
    _, _, tail = rest.partition(END)
    return head + columns() + tail


def pages() -> dict[Path, str]:
    """Return what each page should be."""
    sql = ROOT / "docs" / "sql.md"
    return {
        ROOT / "docs" / "cli.md": cli_page(),
        sql: sql_page(sql.read_text(encoding="utf-8")),
    }


def main() -> int:
    """Write or check the pages."""
    stale = [
        path
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        name = path.relative_to(ROOT)
        if "--check" in sys.argv:
            print(f"{name} is stale: run `python scripts/reference.py`")
        else:
            path.write_text(pages()[path], encoding="utf-8")
            print(f"wrote {name}")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
