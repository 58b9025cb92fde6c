"""LMDB as Caffe lays it out: key `%08d`, value a `Datum` with the image file and its label.

`Datum` is in Caffe's `src/caffe/proto/caffe.proto`. LMDB itself maps the file into
memory; a transaction that stays open keeps the views valid.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from trainkit.data.formats.mapped import Bytes, check_size
from trainkit.data.formats.protobuf import fields, signed
from trainkit.data.kinds import Kind
from trainkit.exits import DataError

DATA, LABEL, ENCODED = 4, 5, 7  # field numbers of Datum
KEY = b"%08d"


class _Environment:
    """A database for reading: LMDB allows one per file and process, so they are shared."""

    def __init__(self, path: Path) -> None:
        self._database = lmdb.open(
            str(path.parent), readonly=True, lock=False, readahead=False, max_spare_txns=0
        )
        facts = self._database.stat()
        # A page that is mapped and beyond the end of the file would be a SIGBUS.
        needed = (self._database.info()["last_pgno"] + 1) * facts["psize"]
        if (size := path.stat().st_size) < needed:
            raise lmdb.CorruptedError(f"{size} bytes of {needed}, it is truncated")
        self.transaction = self._database.begin(buffers=True)
        self.entries = int(facts["entries"])


_OPEN: weakref.WeakValueDictionary[Path, _Environment] = weakref.WeakValueDictionary()


class LmdbShard:
    """One LMDB folder; `file` of its entry names the `data.mdb` in it."""

    def __init__(self, folder: Path, entry: dict[str, Any], kind: Kind) -> None:
        self.path = check_size(folder, entry)
        place = self.path.parent.resolve()
        try:
            environment = _OPEN.get(place)
            if environment is None:
                environment = _OPEN.setdefault(place, _Environment(self.path))
        except lmdb.Error as error:
            raise DataError(f"shard {self.path} is not a whole LMDB database: {error}") from error
        self._environment, self._samples = environment, entry["samples"]
        if environment.entries != self._samples:
            raise DataError(
                f"shard {self.path} has {environment.entries} records, "
                f"dataset.json says {self._samples}"
            )
        self._first = self._first_key()

    def __len__(self) -> int:
        return int(self._samples)

    def frames(self, number: int) -> list[Bytes]:
        """Return the bytes of an image file, a view."""
        datum = self._datum(number)
        image = datum.get(DATA)
        if not isinstance(image, memoryview) or not datum.get(ENCODED):
            raise DataError(f"{self.describe(number)} has no encoded image file (raw pixels?)")
        return [np.frombuffer(image, np.uint8)]

    def labels(self, number: int) -> list[int]:
        """Return the label; Protocol Buffers may leave out a 0."""
        value = self._datum(number).get(LABEL, 0)
        if not isinstance(value, int):
            raise DataError(f"{self.describe(number)}: its label is not a number")
        return [signed(value)]

    def describe(self, number: int) -> str:
        """Return shard and key."""
        return f"{self.path}: record {self._key(number).decode()}"

    def _first_key(self) -> int:
        """Return the number of the first record, which counts on to the last one."""
        if not self._samples:
            return 0
        try:
            with self._environment.transaction.cursor() as cursor:
                cursor.first()
                first = bytes(cursor.key())
                cursor.last()
                last = bytes(cursor.key())
        except lmdb.Error as error:
            raise DataError(f"shard {self.path} is damaged: {error}") from error
        if first.isdigit() and KEY % (int(first) + self._samples - 1) == last:
            return int(first)
        raise DataError(
            f"shard {self.path}: its keys go from {first!r} to {last!r}, "
            "not in numbers of 8 digits without gaps"
        )

    def _key(self, number: int) -> bytes:
        key: bytes = KEY % (self._first + number % self._samples)
        return key

    def _datum(self, number: int) -> dict[int, int | memoryview]:
        try:
            value = self._environment.transaction.get(self._key(number))
        except lmdb.Error as error:
            raise DataError(f"{self.describe(number)} is damaged: {error}") from error
        if value is None:
            raise DataError(f"{self.describe(number)} does not exist")
        try:
            return dict(fields(value))
        except ValueError as error:
            raise DataError(f"{self.describe(number)} is not a Caffe Datum ({error})") from error
