"""TFRecord: `tf.train.Example` messages in frames, and the index of DALI's tfrecord2idx.

A frame is the length (8 bytes, little-endian), its masked CRC32C (4), the message, and
the message's CRC (4). The index has `offset size` of each frame. The CRCs are for
`trimaran data verify`: summing them here would read each image twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trainkit.data.formats.mapped import Bytes, map_shard, number_table
from trainkit.data.formats.protobuf import field, fields, signed, varints
from trainkit.data.kinds import Kind
from trainkit.exits import DataError

HEAD, TAIL = 12, 4  # bytes of a frame around its message
IMAGE, LABEL = b"image/encoded", b"image/class/label"
# Field numbers of tensorflow/core/example/{example,feature}.proto.
FEATURES, ENTRY, KEY, VALUE, BYTES_LIST, INT64_LIST, ITEMS = 1, 1, 1, 2, 1, 3, 1


class TfRecordShard:
    """One TFRecord file with its index."""

    def __init__(self, folder: Path, entry: dict[str, Any], kind: Kind) -> None:
        index, self._table = number_table(folder, entry)
        self.path, self._bytes = map_shard(folder, entry, self._table.sum(axis=1))
        if not len(self._table):
            return
        if self._table.min() < 0 or self._table.sum(axis=1).max() > len(self._bytes):
            raise DataError(f"index {index} points beyond the end of {self.path.name}")
        for number in (0, -1):
            if self._length(number) != self._table[number, 1]:
                raise DataError(f"index {index} does not belong to {self.path.name}")

    def __len__(self) -> int:
        return len(self._table)

    def frames(self, number: int) -> list[Bytes]:
        """Return the bytes of each value of `image/encoded`, views."""
        values = self._feature(number, IMAGE, BYTES_LIST)
        return [np.frombuffer(value, np.uint8) for value in values if not isinstance(value, int)]

    def labels(self, number: int) -> list[int]:
        """Return the numbers of `image/class/label`."""
        found: list[int] = []
        try:
            for value in self._feature(number, LABEL, INT64_LIST):
                # Packed into bytes, or, as old writers do, a field each.
                found += map(signed, [value] if isinstance(value, int) else varints(value))
        except ValueError as error:
            raise DataError(f"{self.describe(number)}: {LABEL.decode()} has {error}") from error
        return found

    def describe(self, number: int) -> str:
        """Return shard, number and byte position."""
        return f"{self.path}: record {number} (at byte {self._table[number, 0]})"

    def _length(self, number: int) -> int:
        """Return the size of a frame by its own length field."""
        start = int(self._table[number, 0])
        length = self._bytes[start : start + 8].tobytes()
        return int.from_bytes(length, "little") + HEAD + TAIL

    def _feature(self, number: int, name: bytes, kind: int) -> list[int | memoryview]:
        """Return the values of the feature `name`."""
        start, size = self._table[number].tolist()
        if self._length(number) != size:
            raise DataError(f"{self.describe(number)} has another length than its index says")
        message = self._bytes[start + HEAD : start + size - TAIL].data
        try:
            features = field(message, FEATURES)
            for key, entry in fields(features) if features is not None else ():
                if (
                    key != ENTRY
                    or isinstance(entry, int)
                    or bytes(field(entry, KEY) or b"") != name
                ):
                    continue
                value = field(entry, VALUE)
                items = field(value, kind) if value is not None else None
                if items is not None:
                    return [item for key, item in fields(items) if key == ITEMS]
        except ValueError as error:
            raise DataError(
                f"{self.describe(number)} is not a tf.train.Example ({error})"
            ) from error
        raise DataError(f"{self.describe(number)} has no {name.decode()}")
