"""What commands print: rows as a table, JSON or CSV, and text made harmless."""

from __future__ import annotations

import csv
import json
import math
import os
import sys
import unicodedata
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Style: TypeAlias = Literal["table", "json", "csv"]

WIDE = 100_000
"""Columns of a table that is not printed on a terminal: nothing is cut off or wrapped, unless
COLUMNS asks for it."""

WORD = 10
"""Letters that a column of words needs to be read."""

NARROWEST = 8
"""Letters to which a column may be cut."""

UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that a terminal obeys instead of printing: escapes, text direction."""


def plain(text: str) -> str:
    r"""Return text on one line, with what a terminal would obey shown as `\x1b` or `\u202e`."""
    return "".join(
        character
        if unicodedata.category(character) not in UNPRINTABLE
        else {"\n": "\\n", "\t": " "}.get(character) or _escape(character)
        for character in text
    )


def brief(text: str, most: int) -> str:
    """Return text on one line, its white space collapsed, with at most `most` letters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def print_json(value: Any) -> None:
    """Print JSON, on a terminal indented; numbers that are not finite are their names."""
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(json_value(value), indent=indent, allow_nan=False))


def print_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], style: Style) -> None:
    """Print rows with these columns; JSON (a list of objects) and CSV are printed as they come."""
    if style == "json":
        _print_list({name: row[name] for name in columns} for row in rows)
    elif style == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([plain(name) for name in columns])
        writer.writerows([_csv_cell(row[name]) for name in columns] for row in rows)
    else:
        print_table(list(rows), columns)


def _print_list(items: Iterable[Any]) -> None:
    """Print a JSON list, an item per line."""
    before = "[\n"
    for item in items:
        print(before + json.dumps(json_value(item), allow_nan=False), end="")
        before = ",\n"
    print("[]" if before == "[\n" else "\n]")


def print_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, shrink: Sequence[str] = ()
) -> None:
    """Print a table; where the terminal is narrow, `shrink` columns lose their beginning.

    Without `shrink` all columns are wrapped instead. A table that the terminal cannot hold
    becomes one line per value.
    """
    out = console()
    cells = [[lines(row[name]) for name in columns] for row in rows]
    widths = [max(map(_width, column)) for column in zip(columns, *cells, strict=True)]
    if not shrink and sum(min(width, WORD) + 1 for width in widths) > out.width:
        print_records(cells, columns)
        return
    roomy = sum(widths) + 2 * len(columns) <= out.width
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, int(roomy), 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    left = out.width - sum(widths) - len(columns)
    for n, name in reversed(list(enumerate(columns))):
        if name in shrink and left < 0:
            share = max(NARROWEST, widths[n] + left)
            left += max(0, widths[n] - share)
            for line in cells:
                line[n] = _ending(line[n], share)
    if shrink and left < 0:
        print_records(cells, columns)
        return
    for name in columns:
        numbers = all(isinstance(row[name], (int, float)) for row in rows if row[name] is not None)
        table.add_column(
            Text(plain(name)),
            justify="right" if numbers and rows else "left",
            overflow="fold",
            no_wrap=bool(shrink),
        )
    for line in cells:
        table.add_row(*map(Text, line))
    out.print(table)


def print_records(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    """Print one row below the other, a line per column: for tables that no terminal can hold."""
    names = [plain(name) for name in columns]
    width = max(map(len, names))
    for n, line in enumerate(cells):
        if n:
            print()
        for name, value in zip(names, line, strict=True):
            print(f"{name:<{width}}  " + value.replace("\n", "\n" + " " * (width + 2)))


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _ending(text: str, width: int) -> str:
    """Return the end of a text: in a dotted name it tells more than the beginning."""
    return text if len(text) <= width else "..." + text[3 - width :]


def console() -> Console:
    """Return where text goes: as wide as the terminal or COLUMNS, or unbroken into a pipe."""
    asked = os.environ.get("COLUMNS", "")
    width = int(asked) if asked.isdecimal() and int(asked) > 0 else None
    bound = sys.stdout.isatty() or width is not None
    return Console(
        file=sys.stdout,
        width=width if bound else WIDE,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=not bound,
    )


def cell(value: Any) -> str:
    """Return a value as the text of one cell; nothing is `-`."""
    if value is None:
        return "-"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, (list, dict)):
        return plain(json.dumps(json_value(value), ensure_ascii=False))
    return plain(str(value))


def lines(value: Any) -> str:
    """Return a value as the text of a cell that may have several lines."""
    if not isinstance(value, str):
        return cell(value)
    return "\n".join(map(plain, value.split("\n")))


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else cell(value)


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: times in ISO form, and `nan`, `inf`, `-inf` as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def size(count: int | None) -> str:
    """Return bytes for a person: `812 B`, `3.4 MB`."""
    if count is None:
        return "-"
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{count} B" if unit == "B" else f"{amount:.{2 if amount < 10 else 3}g} {unit}"


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that work goes on; print nothing into a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(Text(plain(what))):
        yield
