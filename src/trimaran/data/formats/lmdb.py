"""LMDB as Caffe has it: a Datum per sample under the keys `00000000`, `00000001`, … of the shard.

The Datum (caffe/src/caffe/proto/caffe.proto) has the image file in `data` (field 4), the
class in `label` (5) and `encoded` = true (7). A shard is a folder with `data.mdb`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from trimaran.data.formats.records import Read, Record, synced
from trimaran.data.formats.wire import field, fields
from trimaran.data.kinds import Kind

READS_DAMAGED = False  # LMDB follows the page numbers of the file, wherever they lead
INDEXED = False
PLAIN_ONLY = True
_DATA, _LABEL, _ENCODED = 4, 5, 7
_MAP = 1 << 28  # bytes to begin with; doubled when full


class Writer:
    """Writes `STEM.lmdb/data.mdb`; no index, for LMDB finds keys by itself."""

    def __init__(self, folder: Path, stem: str, kind: Kind) -> None:
        self.file, self.index = f"{stem}.lmdb/data.mdb", None
        self._path = folder / self.file
        self._path.parent.mkdir()
        self._size, self._count = _MAP, 0
        # sync=False: nobody reads the shard before close() has flushed it.
        with _errors_of_files():
            self._environment = lmdb.open(
                str(self._path.parent), map_size=self._size, lock=False, sync=False, mode=0o666
            )

    def add(self, record: Record) -> None:
        """Put one Datum behind the others."""
        (image,), (label,) = record.frames, record.labels
        datum = field(_DATA, image) + field(_LABEL, label) + field(_ENCODED, 1)
        key = f"{self._count:08d}".encode()
        with _errors_of_files():
            while not self._put(key, datum):
                self._size *= 2
                self._environment.set_mapsize(self._size)
        self._count += 1

    def _put(self, key: bytes, datum: bytes) -> bool:
        """Return whether there was room in the map."""
        try:
            with self._environment.begin(write=True) as transaction:
                transaction.put(key, datum, append=True)
        except lmdb.MapFullError:
            return False
        return True

    def finish(self) -> None:
        """Flush the shard to disk."""
        self.close()
        synced(self._path)

    def close(self) -> None:
        """Let go of the open file."""
        self._environment.close()


@contextmanager
def _errors_of_files() -> Iterator[None]:
    """Turn what LMDB raises into OSError."""
    try:
        yield
    except lmdb.Error as error:
        # Of a write that came too short LMDB says no more than "Input/output error".
        why = " (is the disk full?)" if "Input/output" in str(error) else ""
        raise OSError(errno.EIO, f"{error}{why}") from error


def read(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
    """Yield every record in the order of the keys."""
    try:
        with lmdb.open(str(path.parent), readonly=True, lock=False) as environment:
            # What lies behind the end of the file would end the process (SIGBUS).
            size = path.stat().st_size
            whole = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
            if size < whole:
                yield f"is cut off: it has {size:,} bytes of {whole:,}"
            else:
                yield from _records(environment)
    except lmdb.Error as error:
        yield f"cannot be read by LMDB: {error}"


def _records(environment: lmdb.Environment) -> Iterator[Read]:
    with environment.begin(buffers=False) as transaction:
        for number, (key, datum) in enumerate(transaction.cursor()):
            name = key.decode(errors="replace")
            if name != f"{number:08d}":
                yield Read(name, fault=f"is not the key {number:08d}")
            yield _parse(name, datum)


def _parse(name: str, datum: bytes) -> Read:
    try:
        found = dict(fields(datum))
        image, label = found[_DATA], found[_LABEL]
    except (ValueError, KeyError):
        return Read(name, fault="is no Datum with label and image")
    if not isinstance(image, bytes) or not isinstance(label, int) or found.get(_ENCODED) != 1:
        return Read(name, fault="is no Datum of an encoded image")
    return Read(name, (label,), (image,))
