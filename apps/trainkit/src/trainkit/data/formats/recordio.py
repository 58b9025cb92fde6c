"""RecordIO of MXNet: an `IRHeader` and an image file per record, and the index of MXNet.

A record is the magic number, a word with a flag (3 bits) and the length (29), and the
payload, padded to 4 bytes (dmlc-core, `include/dmlc/recordio.h`). A payload in which the
magic number stands at a multiple of 4 is stored in parts without it: flag 1 begins, 2
goes on, 3 ends. That happens in a few files of ImageNet; only they are copied.
The payload begins with `IRHeader`: flag, label (float), id, id2 (24 bytes).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from trainkit.data.formats.mapped import Bytes, map_shard, number_table
from trainkit.data.kinds import Kind
from trainkit.exits import DataError

MAGIC = 0xCED7230A
WHOLE, BEGIN, MIDDLE, END = 0, 1, 2, 3
WORDS = struct.Struct("<II")
HEADER = struct.Struct("<IfQQ")


class RecordIoShard:
    """One RecordIO file with its index."""

    def __init__(self, folder: Path, entry: dict[str, Any], kind: Kind) -> None:
        self.path, self._bytes = map_shard(folder, entry)
        index, table = number_table(folder, entry)
        self._keys, self._starts = table[:, 0], table[:, 1]
        if not len(table):
            return
        if self._starts.min() < 0 or self._starts.max() + WORDS.size > len(self._bytes):
            raise DataError(f"index {index} points beyond the end of {self.path.name}")
        for number in (0, -1):
            if WORDS.unpack_from(self._bytes.data, int(self._starts[number]))[0] != MAGIC:
                raise DataError(f"index {index} does not belong to {self.path.name}")

    def __len__(self) -> int:
        return len(self._starts)

    def frames(self, number: int) -> list[Bytes]:
        """Return the bytes of an image file, a view (a copy if it is stored in parts)."""
        return [self._payload(number)[HEADER.size :]]

    def labels(self, number: int) -> list[int]:
        """Return the label in the header."""
        payload = self._payload(number)
        flag, label, _, _ = HEADER.unpack_from(payload.data)
        if flag or label != int(label):
            what = f"{flag} labels" if flag else f"the label {label}"
            raise DataError(f"{self.describe(number)} has {what}, not one whole number")
        return [int(label)]

    def describe(self, number: int) -> str:
        """Return shard, key and byte position."""
        return f"{self.path}: record {self._keys[number]} (at byte {self._starts[number]})"

    def _payload(self, number: int) -> Bytes:
        at = int(self._starts[number])
        flag, part, at = self._part(number, at)
        if flag == BEGIN:
            parts = [part]
            while flag != END:
                flag, part, at = self._part(number, at)
                parts += [np.frombuffer(struct.pack("<I", MAGIC), np.uint8), part]
            part = np.concatenate(parts)
        elif flag != WHOLE:
            raise DataError(f"{self.describe(number)} begins in the middle of a record")
        if len(part) < HEADER.size:
            raise DataError(f"{self.describe(number)} is too short for a header")
        return part

    def _part(self, number: int, at: int) -> tuple[int, Bytes, int]:
        """Return flag and payload of the part at `at`, and where the next one begins."""
        if at + WORDS.size > len(self._bytes):
            raise DataError(f"{self.describe(number)} ends beyond the shard")
        magic, word = WORDS.unpack_from(self._bytes.data, at)
        if magic != MAGIC:
            raise DataError(f"{self.describe(number)} has a wrong magic number: {magic:#x}")
        flag, length = word >> 29, word & (1 << 29) - 1
        end = at + WORDS.size + length
        if end > len(self._bytes):
            raise DataError(f"{self.describe(number)} ends beyond the shard")
        return flag, self._bytes[at + WORDS.size : end], -(-end // 4) * 4
