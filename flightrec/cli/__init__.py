"""The command line: `flightrec`, one file per command, one place for failures."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

import click

from flightrec.cli._output import plain
from flightrec.errors import FlightrecError, UnknownPluginError
from flightrec.guard import strict
from flightrec.registry import Registry

INTERRUPTED = 130
BUG = 4
"""Exit code for a fault of ours, which the table of DESIGN 7 has no code for."""


class Commands(click.Group):
    """The commands there are: a file in this package is a command, none is listed here."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands, sorted."""
        return list(Registry("cli").names())

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import one command; None where there is none of that name."""
        try:
            command: click.Command = Registry("cli").load(cmd_name)
        except UnknownPluginError:
            return None
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="torch-flightrec", prog_name="flightrec")
def flightrec() -> None:
    """Look at recorded failures of a network, replay them, and find what caused them.

    INCIDENT is a path, an id, a unique beginning of one, or `latest` (the default).

    Exit codes: 0 done; 1 the answer is no; 2 wrong usage; 3 this incident cannot be used;
    4 the machine refuses; 130 interrupted.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; every failure is one line that says what to do.

    Called without `arguments` it is the program itself, which may start itself anew.
    """
    _prepare_streams()
    code = _run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    try:
        # click's own main() prints an empty line for Ctrl-C, and a traceback for the rest
        with flightrec.make_context("flightrec", list(given), obj=arguments is None) as context:
            code = flightrec.invoke(context)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as left:
        return left.exit_code
    except BrokenPipeError:
        _drop_output()
        return 0
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except click.UsageError as fault:
        command = fault.ctx.command_path if fault.ctx else "flightrec"
        return _fail(
            f"{fault.format_message().rstrip('.')} (see `{command} --help`)", fault.exit_code
        )
    except click.ClickException as fault:
        return _fail(fault.format_message(), fault.exit_code)
    except FlightrecError as fault:
        return _fail(str(fault), fault.exit_code)
    except OSError as fault:
        return _fail(str(fault), 4)
    except Exception as fault:
        if strict():
            raise
        what = f"{type(fault).__name__}: {fault}"
        return _fail(f"a fault of flightrec itself, please report it: {what}", BUG)


def _fail(message: str, code: int) -> int:
    print(plain(f"flightrec: {message}"), file=sys.stderr)
    return code


def _prepare_streams() -> None:
    """Print what a terminal's encoding lacks as escapes, and warnings as one line each."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    log = logging.getLogger("flightrec")
    if not log.handlers:
        handler = _Lines()
        handler.setLevel(logging.WARNING)
        log.addHandler(handler)
        log.propagate = False


class _Lines(logging.Handler):
    """Warnings of the library, as the command line prints everything."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line to where errors go now."""
        print(plain(f"flightrec: {record.getMessage()}"), file=sys.stderr)


def _drop_output() -> None:
    """Nobody reads on: keep Python from complaining about it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
