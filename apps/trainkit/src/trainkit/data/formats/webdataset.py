"""WebDataset: a tar file with `00000042.jpg` and `00000042.cls` per sample, and DALI's index.

The index (DALI's wds2idx, v1.2) has a line per sample with the kind, position, size and
name of each of its files: `jpg 512 378 00000042.jpg cls 1536 1 00000042.cls`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainkit.data.formats.mapped import Bytes, map_shard, read_index
from trainkit.exits import DataError

TAR_BLOCK = 512
WORDS = 4  # of each file in an index line: kind, position, size, name


class WebDatasetShard:
    """One tar file with its index."""

    def __init__(self, folder: Path, entry: dict[str, Any], encoding: str) -> None:
        self.path, self._bytes = map_shard(folder, entry)
        index, text = read_index(folder, entry)
        # One row per sample: image position, image size, label position, label size.
        self._table = _positions(index, text, entry["samples"], encoding)
        if not len(self._table):
            return
        ends = self._table[:, [0, 2]] + self._table[:, [1, 3]]
        if self._table.min() < 0 or ends.max() > len(self._bytes):
            raise DataError(f"index {index} points beyond the end of {self.path.name}")
        for number in (0, -1):  # an index of another tar file
            if not self._name(number).endswith("." + encoding):
                raise DataError(f"index {index} does not belong to {self.path.name}")

    def __len__(self) -> int:
        return len(self._table)

    def encoded(self, number: int) -> Bytes:
        """Return the bytes of an image file, a view."""
        start, size, _, _ = self._table[number].tolist()
        return self._bytes[start : start + size]

    def label(self, number: int) -> int:
        """Return the number in the sample's `.cls`."""
        _, _, start, size = self._table[number].tolist()
        text = self._bytes[start : start + size].tobytes()
        try:
            return int(text)
        except ValueError as error:
            raise DataError(
                f"{self.describe(number)}: its class is {text[:20]!r}, not a number"
            ) from error

    def describe(self, number: int) -> str:
        """Return shard, name and byte position."""
        return f"{self.path}: record {self._name(number)} (at byte {self._table[number, 0]})"

    def _name(self, number: int) -> str:
        """Return the name in the tar header of an image file."""
        start = int(self._table[number, 0])
        header = self._bytes[max(0, start - TAR_BLOCK) : start].tobytes()
        return header[:100].split(b"\0")[0].decode(errors="replace")


def _positions(path: Path, text: str, samples: int, encoding: str) -> NDArray[np.int64]:
    """Return image position, image size, label position, label size of each sample."""
    try:
        head, _, body = text.partition("\n")
        version, count = head.split()
        announced, listed = int(count), len(body.splitlines())
        if version != "v1.2" or not announced == listed == samples:
            raise DataError(
                f"index {path}: expected v1.2 with {samples} samples as in dataset.json, "
                f"found {version} with {announced} announced and {listed} listed"
            )
        words = np.array(body.split()).reshape(samples, -1) if samples else np.empty((0, 8), "U1")
        kinds = words[:, ::WORDS]
        columns = [WORDS * kinds[0].tolist().index(kind) for kind in (encoding, "cls")]
        if (kinds != kinds[0]).any():
            raise ValueError("its lines have different kinds of files")
        return words[:, [c + offset for c in columns for offset in (1, 2)]].astype(np.int64)
    except (ValueError, IndexError) as error:
        raise DataError(f"index {path} is malformed: {error}") from error
