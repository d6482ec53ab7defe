"""Open an incident without trusting it: checked structure first, tensors when they are asked for.

Opening and reading runs no code from the file. `Incident.batch` decodes values, and resolves
names only as far as a `Trust` allows.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flightrec.errors import CorruptIncidentError, IncidentNotFoundError, StoreError
from flightrec.incident import datasets, keys, layout
from flightrec.incident.codec import content_hash
from flightrec.incident.manifest import check, from_json, tensor_refs
from flightrec.incident.migrate import migrate, readable
from flightrec.tree.decoder import Decoder
from flightrec.tree.raw import TensorLoader
from flightrec.trust import Trust
from flightrec.types import Site, Stat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    import torch
    from numpy.typing import NDArray

    from flightrec.types import TensorRef

# Shape letters: T = steps, S = sites, K = statistics.

MAGIC: Final = b"\x89HDF\r\n\x1a\n"
"""How every HDF5 file begins that has no user block; ours have none."""


def open_incident(
    path: str | os.PathLike[str],
    *,
    max_bytes: int = layout.MAX_BYTES,
    known: Sequence[bytes] | None = None,
) -> Incident:
    """Open and check the incident at `path`; tensors are read later, when asked for.

    `max_bytes` bounds what its tensors may declare, all together. `known` are the keys whose
    incidents count as one's own, by default `keys.known_keys()`.

    Raises `IncidentNotFoundError`, `StoreError` where the file may not be read, `NewerFormatError`,
    and `CorruptIncidentError` for everything else that is no complete incident.
    """
    path = Path(path)
    try:
        _check_file(path)
        with datasets.damage_reported():
            file = datasets.open_file(path)
        try:
            return Incident(path, file, max_bytes, keys.known_keys() if known is None else known)
        except BaseException:
            file.close()
            raise
    except CorruptIncidentError as problem:
        raise CorruptIncidentError(f"{path} cannot be read: {problem}") from problem


def _check_file(path: Path) -> None:
    """Look at the file before HDF5 does, for a clear word and to never wait on a pipe."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise CorruptIncidentError("it is not a file")
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise IncidentNotFoundError(f"no incident at {path}") from problem
    except OSError as problem:
        raise StoreError(f"cannot read {path}: {problem.strerror}") from problem
    if not start:
        raise CorruptIncidentError("it is empty")
    if start != MAGIC:
        raise CorruptIncidentError("it is not an HDF5 file")


class Incident:
    """One captured failure; `close` it, or use it in a `with`.

    Raises `CorruptIncidentError` wherever bytes are not those that were recorded.
    """

    def __init__(self, path: Path, file: Any, max_bytes: int, known: Sequence[bytes]) -> None:
        """Check an open `h5py.File`; use `open_incident`."""
        self.path = path
        self._file = file
        self._root = file.id
        self._max_bytes = max_bytes
        self._check_complete()
        text = self._manifest_text()
        manifest = from_json(text)
        readable(manifest.get("format"))
        self.manifest: dict[str, Any] = migrate(manifest)
        check(self.manifest, max_bytes=max_bytes)
        self.tensors: list[TensorRef] = tensor_refs(self.manifest)
        self._stats_hash = self._text(layout.STATS_HASH)
        self.own = self._signed_by(known, content_hash(text))
        self._storages = datasets.open_group(self._root, layout.STORAGES)
        self._first: dict[str, int] = {}
        for number, entry in enumerate(self.manifest["storages"]):
            self._first.setdefault(entry["hash"], number)

    @property
    def id(self) -> str:
        """Its id, which sorts by time."""
        found: str = self.manifest["id"]
        return found

    def __repr__(self) -> str:
        """Say which one it is."""
        return f"<Incident {self.id}>"

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; the manifest stays, tensors can no longer be read."""
        self._file.close()

    def storage(self, number: int) -> NDArray[np.uint8]:
        """Return the bytes of storage `number`, fresh, uint8 of shape (nbytes,), hash checked."""
        with self._reading(f"storage {number}"):
            if not 0 <= number < len(self.manifest["storages"]):
                raise CorruptIncidentError("there is none such")
            entry = self.manifest["storages"][number]
            first = self._first[entry["hash"]]  # equal bytes lie in the file once
            data = self._content(first, entry["bytes"])
            if content_hash(data) != entry["hash"]:
                raise CorruptIncidentError("its bytes have changed")
            return data

    def tensor(self, index: int) -> torch.Tensor:
        """Return a fresh tensor `index`, on the CPU; see `tensor_loader` for several."""
        return self.tensor_loader()(index)

    def tensor_loader(self) -> Callable[[int], torch.Tensor]:
        """Return a function from index to tensor, with copies of its own.

        Within one loader views share their storage, and an index gives the same object each
        time; `requires_grad` is as recorded. Tensors without elements, and those of the device
        `meta`, have no bytes.
        """
        return TensorLoader(self.tensors, self.storage)

    def stats(self) -> tuple[tuple[Site, ...], NDArray[np.float64]]:
        """Return the watched sites and their statistics, float64 of shape (T, S, K).

        T follows `manifest["steps"]`; K may be less than `len(Stat)` in an older incident.
        """
        sites = tuple(map(Site.parse, self.manifest["sites"]))
        steps = len(self.manifest["steps"])
        most = steps * len(sites) * layout.MAX_STATISTICS * 8
        if not most:
            return sites, np.empty((steps, len(sites), len(Stat)))
        with self._reading("statistics"):
            block = datasets.open_block(self._root, layout.STATS, ("<f8",), max_bytes=most)
            if block.shape[:-1] != (steps, len(sites)):
                raise CorruptIncidentError(f"they have the shape {block.shape}")
            data = self._read(block)
            if content_hash(data) != self._stats_hash:
                raise CorruptIncidentError("they have changed")
            return sites, data.view("<f8").reshape(block.shape)

    def batch(self, trust: Trust | None = None) -> Any:
        """Return the batch that was given to `recorder.step`, None where none was.

        Raises `UntrustedNameError` where it holds objects whose classes `trust` (by default what
        the settings and the incident's own key allow) does not cover.
        """
        if trust is None:
            trust = Trust.from_settings(own=self.own)
        return Decoder(self.tensor_loader(), trust).decode(self.manifest["segment"]["batch"])

    def verify(self) -> list[str]:
        """Read everything; return one line per problem, an empty list where all is as recorded."""
        problems = []
        for number in range(len(self.manifest["storages"])):
            try:
                self.storage(number)
            except CorruptIncidentError as problem:
                problems.append(str(problem))
        try:
            self.stats()
        except CorruptIncidentError as problem:
            problems.append(str(problem))
        return problems

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except CorruptIncidentError as problem:
            raise CorruptIncidentError(f"{self.path}: {what}: {problem}") from problem

    def _check_complete(self) -> None:
        version = datasets.attribute(self._root, layout.FORMAT_ATTRIBUTE)
        if version is None:
            raise CorruptIncidentError("it is HDF5, but not an incident")
        readable(version)
        if datasets.attribute(self._root, layout.COMPLETE) != 1:
            raise CorruptIncidentError("it was never finished")

    def _text(self, name: str) -> str:
        value = datasets.attribute(self._root, name)
        if not isinstance(value, str):
            raise CorruptIncidentError(f"its attribute {name} is missing")
        return value

    def _manifest_text(self) -> bytes:
        block = datasets.open_block(
            self._root, layout.MANIFEST, ("|u1",), max_bytes=layout.MAX_MANIFEST_BYTES
        )
        text = self._read(block).tobytes()
        if content_hash(text) != self._text(layout.MANIFEST_HASH):
            raise CorruptIncidentError("its manifest has changed")
        return text

    def _signed_by(self, known: Sequence[bytes], manifest_hash: str) -> bool:
        code = datasets.attribute(self._root, layout.HMAC)
        identity = keys.identity(self.id, manifest_hash, self._stats_hash)
        return isinstance(code, str) and keys.is_signed_by(known, code, identity)

    def _content(self, number: int, nbytes: int) -> NDArray[np.uint8]:
        """Return what lies in the file under `number`."""
        if not nbytes:
            return np.empty(0, np.uint8)
        element = layout.DTYPES[self.manifest["storages"][number]["dtype"]]
        block = datasets.open_block(
            self._storages, str(number), (element.stored, "|u1"), max_bytes=nbytes
        )
        if block.nbytes != nbytes:
            raise CorruptIncidentError(f"{block.nbytes} of {nbytes} bytes")
        return self._read(block)

    def _read(self, block: datasets.Block) -> NDArray[np.uint8]:
        try:
            data = np.empty(block.nbytes, np.uint8)
        except MemoryError as problem:
            raise StoreError(
                f"{block.nbytes} bytes of memory are needed to read {self.path}"
            ) from problem
        block.read(data)
        return data
