import os
import stat
import threading

import pytest

from flightrec.errors import StoreError
from flightrec.incident import keys

posix = pytest.mark.skipif(os.name != "posix", reason="modes and owners of POSIX")


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(keys.TEAM_VARIABLE, raising=False)


def test_the_key_is_made_on_first_use_and_then_stays():
    assert keys.known_keys() == ()
    assert not keys.key_path().exists()
    key = keys.recording_key()
    assert len(key) == 32
    assert keys.recording_key() == key
    assert keys.known_keys() == (key,)


@posix
def test_only_the_user_can_read_it():
    keys.recording_key()
    assert stat.S_IMODE(keys.key_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.key_path().parent.stat().st_mode) == 0o700
    assert [path.name for path in keys.key_path().parent.iterdir()] == ["key"]


def test_it_lies_in_the_configuration_folder(monkeypatch, tmp_path):
    assert keys.key_path() == tmp_path / "config" / "flightrec" / "key"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for unset in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CONFIG_HOME", unset)
        assert keys.key_path() == tmp_path / ".config" / "flightrec" / "key"


def test_two_keys_differ(monkeypatch, tmp_path):
    first = keys.recording_key()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert keys.recording_key() != first


def test_of_many_that_start_together_one_key_remains():
    barrier = threading.Barrier(8)
    made = []

    def start():
        barrier.wait()
        made.append(keys.recording_key())

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert set(made) == {keys.user_key()}


def test_a_teams_key_signs_and_the_users_own_still_counts(monkeypatch):
    own = keys.recording_key()
    monkeypatch.setenv(keys.TEAM_VARIABLE, "of the team")
    assert keys.recording_key() == b"of the team"
    assert keys.known_keys() == (b"of the team", own)


def test_an_empty_team_key_is_none(monkeypatch):
    monkeypatch.setenv(keys.TEAM_VARIABLE, "  ")
    assert len(keys.recording_key()) == 32


def test_with_a_teams_key_none_is_made(monkeypatch):
    monkeypatch.setenv(keys.TEAM_VARIABLE, "of the team")
    assert keys.recording_key() == b"of the team"
    assert not keys.key_path().exists()


@posix
def test_a_key_that_others_can_read_is_not_used():
    keys.recording_key()
    keys.key_path().chmod(0o644)
    with pytest.raises(StoreError, match="can be read by others: chmod 600"):
        keys.user_key()
    assert keys.known_keys() == ()
    assert keys.recording_key() is None


@pytest.mark.parametrize("text", ["", "zz" * 32, "ab" * 31, "ab" * 100, "\xff"])
def test_a_damaged_key_is_not_used(text):
    keys.recording_key()
    keys.key_path().write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match="is damaged: delete it"):
        keys.user_key(create=True)
    assert keys.recording_key() is None


def test_a_folder_that_cannot_be_made_leaves_incidents_unsigned(monkeypatch, tmp_path):
    (tmp_path / "config").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="cannot use the key"):
        keys.user_key(create=True)
    assert keys.recording_key() is None
    assert keys.known_keys() == ()


def test_no_home_leaves_incidents_unsigned(monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")

    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(StoreError, match="no home folder"):
        keys.user_key()
    assert keys.recording_key() is None
    assert keys.known_keys() == ()


IDENTITY = keys.identity("id-1", "ab" * 16, "cd" * 16)


def test_a_signature_is_known_by_its_key_only():
    code = keys.signature(b"mine", IDENTITY)
    assert keys.is_signed_by([b"mine"], code, IDENTITY)
    assert keys.is_signed_by([b"other", b"mine"], code, IDENTITY)
    assert not keys.is_signed_by([b"other"], code, IDENTITY)
    assert not keys.is_signed_by([], code, IDENTITY)


@pytest.mark.parametrize("name", IDENTITY)
def test_it_covers_everything(name):
    code = keys.signature(b"mine", IDENTITY)
    assert not keys.is_signed_by([b"mine"], code, {**IDENTITY, name: "other"})


@pytest.mark.parametrize("code", ["", "00" * 32, "\udcff", "\xe4" * 64])
def test_any_text_may_be_offered_as_a_signature(code):
    assert not keys.is_signed_by([b"mine"], code, IDENTITY)
