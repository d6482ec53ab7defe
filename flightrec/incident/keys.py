"""Whose incident is it? The recording user's key, and the code that it puts on a file."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flightrec.errors import StoreError
from flightrec.incident.layout import ID_ATTRIBUTE, MANIFEST_HASH, STATS_HASH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger("flightrec")

TEAM_VARIABLE: Final = "FLIGHTREC_KEY"
KEY_BYTES: Final = 32


def key_path() -> Path:
    """Return where the user's key lies: `flightrec/key` in the configuration folder.

    That is XDG_CONFIG_HOME, which counts only as an absolute path, else `~/.config`. Raises
    `StoreError` for a user without a home.
    """
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.config")
    if not os.path.isabs(base):
        raise StoreError("there is no home folder to keep a key in: set XDG_CONFIG_HOME")
    return Path(base) / "flightrec" / "key"


def recording_key() -> bytes | None:
    """Return the key that signs what is recorded now, making the user's own on first use.

    The team's key (FLIGHTREC_KEY) goes before the user's. None where there is no team key and
    the user's can neither be read nor made: incidents are then written without a code, and
    replay asks for `--trust`. `user_key` says why.
    """
    team = _team_key()
    if team is not None:
        return team
    try:
        return user_key(create=True)
    except StoreError as problem:
        log.debug("incidents will not be signed: %s", problem)
        return None


def known_keys() -> tuple[bytes, ...]:
    """Return every key whose incidents are the user's own; makes none and raises nothing."""
    keys = [_team_key()]
    try:
        keys.append(user_key())
    except StoreError as problem:
        log.debug("the user's key is not used: %s", problem)
    return tuple(key for key in keys if key is not None)


def user_key(*, create: bool = False) -> bytes | None:
    """Return the user's key, None where there is none and none is to be made.

    Raises `StoreError` where the file cannot be read or made, is damaged, or may be read by
    others: whoever has the key can have code of the user imported.
    """
    path = key_path()
    try:
        if create and not path.exists():
            _make(path)
        return _read(path)
    except FileNotFoundError:
        return None
    except StoreError:
        raise
    except OSError as problem:
        raise StoreError(f"cannot use the key {path}: {problem}") from problem


def identity(incident_id: str, manifest_hash: str, stats_hash: str) -> dict[str, str]:
    """Return what a signature covers; the manifest in turn has the hashes of all storages."""
    return {ID_ATTRIBUTE: incident_id, MANIFEST_HASH: manifest_hash, STATS_HASH: stats_hash}


def signature(key: bytes, identity: Mapping[str, str]) -> str:
    """Return the HMAC-SHA256, hex, over the canonical JSON of an `identity`."""
    message = json.dumps(dict(identity), sort_keys=True, separators=(",", ":")).encode("ascii")
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def is_signed_by(keys: Sequence[bytes], code: str, identity: Mapping[str, str]) -> bool:
    """Was `code` made with one of `keys`? Takes the same time whatever differs."""
    given = code.encode("utf-8", "replace")
    return any(hmac.compare_digest(signature(key, identity).encode("ascii"), given) for key in keys)


def _team_key() -> bytes | None:
    text = os.environ.get(TEAM_VARIABLE, "").strip()
    return text.encode("utf-8", "surrogateescape") if text else None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        text = file.read(4 * KEY_BYTES).strip()
    if sys.platform != "win32":
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise StoreError(f"the key {path} can be read by others: chmod 600 it, or delete it")
        if status.st_uid != os.geteuid():
            raise StoreError(f"the key {path} belongs to somebody else: delete it")
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise StoreError(f"the key {path} is damaged: delete it, and a new one is made")
    return key


def _make(path: Path) -> None:
    """Make the key so that nobody ever sees half of one; whoever is first wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".key-{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
