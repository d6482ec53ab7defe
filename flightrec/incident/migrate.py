"""The version of the format, what each one changed, and how an older manifest is brought up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flightrec.errors import CorruptIncidentError, NewerFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMAT: Final = 1
"""What this build writes. A change that an older build would misread needs a new number, a line
in HISTORY, a step in MIGRATIONS and a golden file."""

HISTORY: Final[Mapping[int, str]] = {
    1: "The first.",
}
"""What each version changed."""

MIGRATIONS: Final[Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {}
"""Step n takes a manifest of version n and returns it as version n + 1."""


def readable(version: object, *, newest: int = FORMAT, oldest: int = 1) -> int:
    """Return `version` if this build reads it.

    Raises `NewerFormatError` for a later one, `CorruptIncidentError` for what is no version.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < oldest:
        raise CorruptIncidentError(f"no such format: {str(version)[:40]}")
    if version > newest:
        raise NewerFormatError(
            f"written in format {version}, this build reads up to {newest}: "
            "pip install --upgrade torch-flightrec"
        )
    return version


def migrate(
    manifest: dict[str, Any],
    *,
    migrations: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = MIGRATIONS,
    newest: int = FORMAT,
) -> dict[str, Any]:
    """Return `manifest` as version `newest`, by one step per version; it may be changed.

    Raises `NewerFormatError`, or `CorruptIncidentError` where a step does not find what its
    version must have.
    """
    oldest = min(migrations, default=newest)
    version = readable(manifest.get("format"), newest=newest, oldest=oldest)
    for step in range(version, newest):
        try:
            manifest = migrations[step](manifest)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as problem:
            raise CorruptIncidentError(
                f"not a manifest of format {step}: {type(problem).__name__}: {problem}"
            ) from problem
        manifest["format"] = step + 1
    return manifest
