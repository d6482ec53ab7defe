"""The file that HDF5 writes to, so that a disk that fills up does not take HDF5 with it."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class Output(io.RawIOBase):
    """A new file for h5py, of this user only, over one descriptor.

    HDF5 cannot close a file that it can no longer write: it keeps it open, with its space, for as
    long as the process lives. So once a write has failed, nothing more is written and HDF5 is told
    that all is well; `check` raises what happened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make the file, mode 0600; raises `OSError`, also where it is there already."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(path, flags, 0o600)
        self._failure: OSError | None = None

    def check(self) -> None:
        """Raise the `OSError` of the first write that failed, if one did."""
        if self._failure is not None:
            raise self._failure

    def sync(self) -> None:
        """Have the system write everything to the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor; calling this twice does no harm."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()

    def readable(self) -> bool:
        """Say that it can be read: HDF5 reads back what it wrote."""
        return True

    def writable(self) -> bool:
        """Say that it can be written."""
        return True

    def seekable(self) -> bool:
        """Say that it can be read and written anywhere."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place in the file."""
        return os.lseek(self._descriptor, offset, whence)

    def tell(self) -> int:
        """Return the place in the file."""
        return os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read from here; what lies behind the end is zeros."""
        view = memoryview(buffer).cast("B")
        data = os.read(self._descriptor, len(view))
        view[: len(data)] = data
        view[len(data) :] = bytes(len(view) - len(data))
        return len(view)

    def write(self, data: ReadableBuffer) -> int:
        """Write all of `data` here, or nothing once a write has failed."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while done < len(view) and self._failure is None:
                done += os.write(self._descriptor, view[done:])
        except OSError as failure:
            self._failure = failure
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the length of the file."""
        size = self.tell() if size is None else size
        try:
            if self._failure is None:
                os.ftruncate(self._descriptor, size)
        except OSError as failure:
            self._failure = failure
        return size
