"""Every error of this project: one base, a slug for the docs, an exit code."""

from __future__ import annotations

from typing import ClassVar


class FlightrecError(Exception):
    """Base of all errors; `slug` is the heading in docs/errors.md that explains it."""

    slug: ClassVar[str] = "flightrec-error"
    exit_code: ClassVar[int] = 3


class UsageError(FlightrecError, ValueError):
    """An option, name or prefix that cannot be meant; the message lists what is allowed."""

    slug = "usage"
    exit_code = 2


class QueryError(UsageError):
    """An SQL statement that is wrong or not allowed."""

    slug = "bad-sql"


class UnknownPluginError(UsageError, LookupError):
    """No plug-in of that name; the message lists the names there are."""

    slug = "unknown-plugin"


class IncidentError(FlightrecError, RuntimeError):
    """Raised into the run, when asked to, at the end of a step that had an incident."""

    slug = "incident"
    exit_code = 1


class IncidentNotFoundError(FlightrecError, LookupError):
    """No incident of that path, id or prefix."""

    slug = "no-such-incident"


class CorruptIncidentError(FlightrecError, ValueError):
    """A file that is not an incident, is damaged, or breaks a limit of the reader."""

    slug = "corrupt-incident"


class NewerFormatError(FlightrecError, ValueError):
    """An incident written by a later format than this build reads."""

    slug = "newer-format"


class UntrustedNameError(FlightrecError, PermissionError):
    """The incident names code that nobody trusted; nothing of it was imported."""

    slug = "untrusted-name"


class CodeMissingError(FlightrecError, ImportError):
    """The code an incident needs cannot be imported here, or has no such name."""

    slug = "code-missing"


class CannotRebuildError(FlightrecError, RuntimeError):
    """The incident does not hold what this needs; a placeholder was touched."""

    slug = "cannot-rebuild"


class StoreError(FlightrecError, OSError):
    """The machine refuses: no space, no permission, no such folder."""

    slug = "store"
    exit_code = 4


class MissingExtraError(FlightrecError, ImportError):
    """An optional package is needed; the message has the command that installs it."""

    slug = "missing-extra"
    exit_code = 4
