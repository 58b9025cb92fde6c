"""LMDB shards in Caffe's layout: a Datum per sample under the keys `00000000`, `00000001`, …

The Datum (caffe/src/caffe/proto/caffe.proto) has the image file in `data` (field 4), the
class in `label` (5) and `encoded` = true (7). A shard is a folder with `data.mdb`. LMDB itself maps
the file into memory; `Reader` keeps a transaction open so that the views of the file stay valid.
"""

from __future__ import annotations

import errno
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import numpy as np

from shards.description import Shard
from shards.errors import ShardError
from shards.files import synced
from shards.formats.mapped import check_size
from shards.formats.records import Bytes, Read, Record
from shards.kinds import Kind
from shards.protobuf import encoded, fields, signed

_DATA, _LABEL, _ENCODED = 4, 5, 7
_KEY = b"%08d"
_MAP = 1 << 28  # initial size in bytes; doubled when full


class Writer:
    """A writer of `STEM.lmdb/data.mdb`, without an index, because LMDB looks up keys itself."""

    def __init__(self, folder: Path, stem: str, kind: Kind) -> None:
        self.file, self.index = f"{stem}.lmdb/data.mdb", None
        self._path = folder / self.file
        self._path.parent.mkdir()
        self._size, self._count = _MAP, 0
        # sync=False is safe, because no process reads the shard before close() has flushed it.
        with _errors_of_files():
            self._environment = lmdb.open(
                str(self._path.parent), map_size=self._size, lock=False, sync=False, mode=0o666
            )

    def add(self, record: Record) -> None:
        """Append the Datum of one sample."""
        (image,), (label,) = record.frames, record.labels
        datum = encoded(_DATA, image) + encoded(_LABEL, label) + encoded(_ENCODED, 1)
        with _errors_of_files():
            while not self._put(_KEY % self._count, datum):
                self._size *= 2
                self._environment.set_mapsize(self._size)
        self._count += 1

    def _put(self, key: bytes, datum: bytes) -> bool:
        """Store `datum` under `key`; return False if the memory map is full."""
        try:
            with self._environment.begin(write=True) as transaction:
                transaction.put(key, datum, append=True)
        except lmdb.MapFullError:
            return False
        return True

    def finish(self) -> None:
        """Close the database, and flush the shard to disk."""
        self.close()
        synced(self._path)

    def close(self) -> None:
        """Close the database."""
        self._environment.close()


@contextmanager
def _errors_of_files() -> Iterator[None]:
    """Convert LMDB errors to OSError."""
    try:
        yield
    except lmdb.Error as error:
        # For a short write LMDB reports only "Input/output error".
        why = " (is the disk full?)" if "Input/output" in str(error) else ""
        raise OSError(errno.EIO, f"{error}{why}") from error


def _missing(database: lmdb.Environment, path: Path) -> tuple[int, int] | None:
    """Return (actual, expected) size of a truncated file in bytes, or None for a complete file.

    Access to a mapped page beyond the end of the file would kill the process (SIGBUS).
    """
    size = path.stat().st_size
    whole = (database.info()["last_pgno"] + 1) * database.stat()["psize"]
    return (size, whole) if size < whole else None


class _Environment:
    """A database that is open for reading; all readers of a process share it.

    LMDB does not allow a process to open the same database twice.
    """

    def __init__(self, path: Path) -> None:
        self._database = lmdb.open(
            str(path.parent), readonly=True, lock=False, readahead=False, max_spare_txns=0
        )
        if sizes := _missing(self._database, path):
            raise lmdb.CorruptedError(f"{sizes[0]} bytes of {sizes[1]}, it is truncated")
        self.transaction = self._database.begin(buffers=True)
        self.entries = int(self._database.stat()["entries"])


_OPEN: weakref.WeakValueDictionary[Path, _Environment] = weakref.WeakValueDictionary()


class Reader:
    """A reader of the samples of one LMDB database; `entry.file` is the path of its `data.mdb`."""

    def __init__(self, folder: Path, entry: Shard, kind: Kind, encoding: str) -> None:
        self.path = check_size(folder, entry)
        place = self.path.parent.resolve()
        try:
            environment = _OPEN.get(place)
            if environment is None:
                environment = _OPEN.setdefault(place, _Environment(self.path))
        except lmdb.Error as error:
            raise ShardError(f"shard {self.path} is not a whole LMDB database: {error}") from error
        self._environment, self._samples = environment, entry.samples
        if environment.entries != self._samples:
            raise ShardError(
                f"shard {self.path} has {environment.entries} records, "
                f"but dataset.json lists {self._samples}"
            )
        self._first = self._first_key()

    def __len__(self) -> int:
        return self._samples

    def frames(self, number: int) -> list[Bytes]:
        """Return a list with the encoded image file of a sample, as a view of its bytes."""
        datum = self._datum(number)
        image = datum.get(_DATA)
        if not isinstance(image, memoryview) or not datum.get(_ENCODED):
            raise ShardError(f"{self.describe(number)} has no encoded image file (raw pixels?)")
        return [np.frombuffer(image, np.uint8)]

    def labels(self, number: int) -> list[int]:
        """Return a list with the class of a sample; it is 0 if the record has no label field."""
        value = self._datum(number).get(_LABEL, 0)
        if not isinstance(value, int):
            raise ShardError(f"{self.describe(number)}: its label is not a number")
        return [signed(value)]

    def describe(self, number: int) -> str:
        """Return the shard and the key of a record as a text for an error message."""
        return f"{self.path}: record {self._key(number).decode()}"

    def _first_key(self) -> int:
        """Return the number of the first key; raise ShardError if the keys are not consecutive."""
        if not self._samples:
            return 0
        try:
            with self._environment.transaction.cursor() as cursor:
                cursor.first()
                first = bytes(cursor.key())
                cursor.last()
                last = bytes(cursor.key())
        except lmdb.Error as error:
            raise ShardError(f"shard {self.path} is damaged: {error}") from error
        if first.isdigit() and _KEY % (int(first) + self._samples - 1) == last:
            return int(first)
        raise ShardError(
            f"shard {self.path}: its keys go from {first!r} to {last!r}, "
            "not in numbers of 8 digits without gaps"
        )

    def _key(self, number: int) -> bytes:
        return _KEY % (self._first + number % self._samples)

    def _datum(self, number: int) -> dict[int, int | memoryview]:
        try:
            value = self._environment.transaction.get(self._key(number))
        except lmdb.Error as error:
            raise ShardError(f"{self.describe(number)} is damaged: {error}") from error
        if value is None:
            raise ShardError(f"{self.describe(number)} does not exist")
        try:
            return dict(fields(value))
        except ValueError as error:
            raise ShardError(f"{self.describe(number)} is not a Caffe Datum ({error})") from error


def scan(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
    """Yield every record in the order of the keys, and faults of the shard as text."""
    try:
        with lmdb.open(str(path.parent), readonly=True, lock=False) as database:
            if sizes := _missing(database, path):
                yield f"is cut off: it has {sizes[0]:,} bytes of {sizes[1]:,}"
            else:
                yield from _records(database)
    except lmdb.Error as error:
        yield f"cannot be read by LMDB: {error}"


def _records(database: lmdb.Environment) -> Iterator[Read]:
    with database.begin(buffers=False) as transaction:
        for number, (key, datum) in enumerate(transaction.cursor()):
            name = key.decode(errors="replace")
            if name != f"{number:08d}":
                yield Read(name, fault=f"is not the key {number:08d}")
            yield _parsed(name, datum)


def _parsed(name: str, datum: bytes) -> Read:
    try:
        found = dict(fields(memoryview(datum)))
        image, label = found[_DATA], found[_LABEL]
    except (ValueError, KeyError):
        return Read(name, fault="is no Datum with label and image")
    if isinstance(image, int) or not isinstance(label, int) or found.get(_ENCODED) != 1:
        return Read(name, fault="is no Datum of an encoded image")
    return Read(name, (label,), (bytes(image),))
