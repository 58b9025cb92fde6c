"""WebDataset: a tar file with `00000042.jpg` and `00000042.cls` per sample, and DALI's index.

The frames of a sequence are `00000042.000000.jpg`, `00000042.000001.jpg`, and so on.
The index (DALI's wds2idx, v1.2) has a line per sample with the kind, position, size and
name of each of its files: `jpg 512 378 00000042.jpg cls 1536 1 00000042.cls`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainkit.data.formats.mapped import Bytes, map_shard, read_index
from trainkit.data.kinds import Kind
from trainkit.exits import DataError

TAR_BLOCK = 512
WORDS = 4  # of each file in an index line: kind, position, size, name


@dataclass(frozen=True)
class Positions:
    """Where the files of all samples are, (position, size) each.

    Attributes:
        frames: image files, of all samples one after another, (images, 2).
        first: where in `frames` those of each sample begin, (samples + 1,).
        labels: files with classes, (samples, 2); none without labels.
    """

    frames: NDArray[np.int64]
    first: NDArray[np.int64]
    labels: NDArray[np.int64]


class WebDatasetShard:
    """One tar file with its index."""

    def __init__(self, folder: Path, entry: dict[str, Any], kind: Kind) -> None:
        self.path, self._bytes = map_shard(folder, entry)
        index, text = read_index(folder, entry)
        self._at = _positions(index, text, entry["samples"], kind)
        if not len(self):
            return
        files = np.concatenate([self._at.frames, self._at.labels])
        if files.min() < 0 or files.sum(axis=1).max() > len(self._bytes):
            raise DataError(f"index {index} points beyond the end of {self.path.name}")
        for number in (0, -1):  # an index of another tar file
            if not self._name(self._at.frames[number, 0]).endswith("." + kind.encoding):
                raise DataError(f"index {index} does not belong to {self.path.name}")

    def __len__(self) -> int:
        return len(self._at.first) - 1

    def frames(self, number: int) -> list[Bytes]:
        """Return the bytes of the image files of a sample, views."""
        first, end = self._at.first[number : number + 2].tolist()
        return [self._bytes[at : at + size] for at, size in self._at.frames[first:end].tolist()]

    def labels(self, number: int) -> list[int]:
        """Return the numbers in the sample's `.cls`."""
        if not len(self._at.labels):
            return []
        start, size = self._at.labels[number].tolist()
        text = self._bytes[start : start + size].tobytes()
        try:
            return [int(word) for word in text.split()]
        except ValueError as error:
            raise DataError(
                f"{self.describe(number)}: its class is {text[:20]!r}, not a number"
            ) from error

    def describe(self, number: int) -> str:
        """Return shard, name and byte position."""
        start = self._at.frames[self._at.first[number], 0]
        return f"{self.path}: record {self._name(start)} (at byte {start})"

    def _name(self, start: int) -> str:
        """Return the name in the tar header of the file whose content begins at `start`."""
        header = self._bytes[max(0, start - TAR_BLOCK) : start].tobytes()
        return header[:100].split(b"\0")[0].decode(errors="replace")


def _positions(path: Path, text: str, samples: int, kind: Kind) -> Positions:
    """Return where the index says that the files of each sample are."""
    try:
        head, _, body = text.partition("\n")
        version, count = head.split()
        lines = body.splitlines()
        if version != "v1.2" or not int(count) == len(lines) == samples:
            raise DataError(
                f"index {path}: expected v1.2 with {samples} samples as in dataset.json, "
                f"found {version} with {count} announced and {len(lines)} listed"
            )
        return (_of_images if kind.sample == "image" else _of_sequences)(lines, kind)
    except (ValueError, IndexError) as error:
        raise DataError(f"index {path} is malformed: {error}") from error


def _of_images(lines: list[str], kind: Kind) -> Positions:
    """Return the positions in lines that all list the same kinds of files."""
    wanted = [kind.encoding] if kind.labels == "none" else [kind.encoding, "cls"]
    if not lines:
        nothing = np.empty((0, 2), np.int64)
        return Positions(nothing, np.zeros(1, np.int64), nothing)
    words = np.array(" ".join(lines).split()).reshape(len(lines), -1)
    kinds = words[:, ::WORDS]
    columns = [WORDS * kinds[0].tolist().index(name) for name in wanted]
    if (kinds != kinds[0]).any():
        raise ValueError("its lines have different kinds of files")
    frames, *labels = (words[:, at + 1 : at + 3].astype(np.int64) for at in columns)
    return Positions(frames, np.arange(len(lines) + 1), labels[0] if labels else frames[:0])


def _of_sequences(lines: list[str], kind: Kind) -> Positions:
    """Return the positions in lines of as many frames as each sample has, and of its classes."""
    last = [] if kind.labels == "none" else ["cls"]
    frames: list[tuple[int, int]] = []
    labels: list[tuple[int, int]] = []
    counts = []
    for number, line in enumerate(lines, 2):
        words = line.split()
        count = len(words) // WORDS - len(last)
        names = [f"{at:06d}.{kind.encoding}" for at in range(count)]
        if count < 1 or words[::WORDS] != names + last:
            listed = " ".join(words[::WORDS])
            wanted = " ".join([f"000000.{kind.encoding}, 000001.{kind.encoding}, …", *last])
            raise ValueError(f"line {number} lists {listed[:60]}, not {wanted}")
        files = list(zip(map(int, words[1::WORDS]), map(int, words[2::WORDS]), strict=True))
        frames += files[:count]
        labels += files[count:]
        counts.append(count)
    return Positions(_pairs(frames), np.array([0, *accumulate(counts)]), _pairs(labels))


def _pairs(found: list[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(found, np.int64).reshape(-1, 2)
