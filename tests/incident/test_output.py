import errno
import os
import stat

import h5py
import pytest

from flightrec.incident.output import Output


def test_h5py_writes_through_it(tmp_path):
    path = tmp_path / "x.h5"
    with Output(path) as output:
        with h5py.File(output, "w") as file:
            file["numbers"] = [1, 2, 3]
        output.check()
        output.sync()
    with h5py.File(path) as file:
        assert file["numbers"][:].tolist() == [1, 2, 3]


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_it_is_the_users_alone(tmp_path):
    with Output(tmp_path / "x"):
        assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_it_never_opens_what_is_there(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(FileExistsError):
        Output(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"


def test_short_writes_are_completed(tmp_path, monkeypatch):
    real = os.write
    with Output(tmp_path / "x") as output:
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
        assert output.write(b"0123456789") == 10
    assert (tmp_path / "x").read_bytes() == b"0123456789"


@pytest.mark.parametrize("call", ["write", "ftruncate"])
def test_after_a_failure_hdf5_can_let_go_and_the_failure_is_told(tmp_path, monkeypatch, call):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    with Output(tmp_path / "x") as output:
        file = h5py.File(output, "w")
        file["numbers"] = range(1000)
        monkeypatch.setattr(os, call, full)
        file["more"] = range(100_000)
        file.close()
        with pytest.raises(OSError, match="No space left"):
            output.check()
        monkeypatch.undo()
        size = (tmp_path / "x").stat().st_size
        output.write(b"later")
        assert (tmp_path / "x").stat().st_size == size
    if opened is not None:
        assert len(os.listdir("/proc/self/fd")) == opened


def test_what_lies_behind_the_end_is_zeros(tmp_path):
    with Output(tmp_path / "x") as output:
        output.write(b"ab")
        output.seek(1)
        buffer = bytearray(b"....")
        assert output.readinto(buffer) == 4
        assert buffer == b"b\0\0\0"
        output.seek(3)
        output.truncate()
    assert (tmp_path / "x").read_bytes() == b"ab\0"


def test_closing_twice_does_no_harm(tmp_path):
    output = Output(tmp_path / "x")
    output.close()
    output.close()
