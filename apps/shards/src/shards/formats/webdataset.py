"""WebDataset shards: a tar file with `NNNNNNNN.jpg` and `NNNNNNNN.cls` per sample, and an index.

The frames of a sequence are `NNNNNNNN.000000.jpg`, `NNNNNNNN.000001.jpg`, and so on. The `.cls`
file contains the class as decimal digits, or several classes separated by blanks; it is missing if
the data set has no labels. Tar headers have no time and no owner, so that the bytes depend on the
samples only. The index (DALI's wds2idx, version 1.2) has a line per sample with extension,
position, size and name of each file of the sample.
"""

from __future__ import annotations

import io
import itertools
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shards.description import Shard
from shards.errors import ShardError
from shards.formats.indexed import IndexedWriter
from shards.formats.mapped import map_shard, read_index
from shards.formats.records import Bytes, Read, Record
from shards.kinds import Kind

BLOCK = tarfile.BLOCKSIZE
INDEX_VERSION = "v1.2"
WORDS = 4  # words per member in an index line: extension, position, size, name
IMAGES = ("jpg", "png")
_DIGITS = 19  # digits of numbers that exceed any position or size


class Writer(IndexedWriter):
    """A writer of the shard `STEM.tar` and of its index `STEM.idx`."""

    suffix = ".tar"

    def __init__(self, folder: Path, stem: str, kind: Kind) -> None:
        super().__init__(folder, stem, kind)
        self._tar = tarfile.open(  # noqa: SIM115 - finish() closes it
            fileobj=self._out, mode="w", format=tarfile.USTAR_FORMAT
        )

    def add(self, record: Record) -> None:
        """Append the files of one sample and its index line."""
        members = {record.encoding: record.frames[0]}
        if self.kind.sample == "sequence":
            members = {
                f"{at:06d}.{record.encoding}": frame for at, frame in enumerate(record.frames)
            }
        if self.kind.labels != "none":
            members["cls"] = " ".join(map(str, record.labels)).encode()
        words = []
        for extension, content in members.items():
            member = tarfile.TarInfo(f"{record.key:08d}.{extension}")  # time and owner are 0
            member.size = len(content)
            words += [extension, str(self._tar.offset + BLOCK), str(len(content)), member.name]
            self._tar.addfile(member, io.BytesIO(content))
        self._lines.append(" ".join(words) + "\n")

    def finish(self) -> None:
        """Complete the tar file, write its index, and flush both to disk."""
        self._tar.close()
        self._lines.insert(0, f"{INDEX_VERSION} {len(self._lines)}\n")
        super().finish()


@dataclass(frozen=True)
class Positions:
    """The positions and sizes, in bytes, of all sample files in a tar file.

    Attributes:
        frames: position and size of each image file, sample after sample, (images, 2).
        first: row of `frames` at which each sample begins, then the number of rows, (samples + 1,).
        labels: position and size of each `.cls` file, (samples, 2), or (0, 2) without labels.
    """

    frames: NDArray[np.int64]
    first: NDArray[np.int64]
    labels: NDArray[np.int64]


class Reader:
    """A reader of the samples of one tar file by its index."""

    def __init__(self, folder: Path, entry: Shard, kind: Kind, encoding: str) -> None:
        self.path, self._bytes = map_shard(folder, entry)
        index, text = read_index(folder, entry)
        self._at = _positions(index, text, entry.samples, kind, encoding)
        if not len(self):
            return
        files = np.concatenate([self._at.frames, self._at.labels])
        if files.min() < 0 or files.sum(axis=1).max() > len(self._bytes):
            raise ShardError(f"index {index} points beyond the end of {self.path.name}")
        for number in (0, -1):  # detects the index of another tar file
            if not self._name(self._at.frames[number, 0]).endswith("." + encoding):
                raise ShardError(f"index {index} does not belong to {self.path.name}")

    def __len__(self) -> int:
        return len(self._at.first) - 1

    def frames(self, number: int) -> list[Bytes]:
        """Return the encoded image files of a sample as views of their bytes."""
        first, end = self._at.first[number : number + 2].tolist()
        return [self._bytes[at : at + size] for at, size in self._at.frames[first:end].tolist()]

    def labels(self, number: int) -> list[int]:
        """Return the class numbers in the `.cls` file of a sample."""
        if not len(self._at.labels):
            return []
        start, size = self._at.labels[number].tolist()
        text = self._bytes[start : start + size].tobytes()
        try:
            return [int(word) for word in text.split()]
        except ValueError as error:
            raise ShardError(
                f"{self.describe(number)}: its class is {text[:20]!r}, not a number"
            ) from error

    def describe(self, number: int) -> str:
        """Return shard, name and byte position of a record as a text for an error message."""
        start = self._at.frames[self._at.first[number], 0]
        return f"{self.path}: record {self._name(start)} (at byte {start})"

    def _name(self, start: int) -> str:
        """Return the file name in the tar header before the content that begins at byte `start`."""
        header = self._bytes[max(0, start - BLOCK) : start].tobytes()
        return header[:100].split(b"\0")[0].decode(errors="replace")


def _positions(path: Path, text: str, samples: int, kind: Kind, encoding: str) -> Positions:
    """Return the positions of all files from the text of an index; raise ShardError on faults."""
    try:
        head, _, body = text.partition("\n")
        version, count = head.split()
        lines = body.splitlines()
        if version != INDEX_VERSION or not int(count) == len(lines) == samples:
            raise ShardError(
                f"index {path}: expected {INDEX_VERSION} with {samples} samples as in "
                f"dataset.json, found {version} with {count} announced and {len(lines)} listed"
            )
        return (_of_images if kind.sample == "image" else _of_sequences)(lines, kind, encoding)
    except (ValueError, IndexError) as error:
        raise ShardError(f"index {path} is malformed: {error}") from error


def _of_images(lines: list[str], kind: Kind, encoding: str) -> Positions:
    """Return the positions of all files in a tar file of images, from the lines of its index.

    Each line lists the files of one image; the file extensions must be the same in all lines.
    """
    wanted = [encoding] if kind.labels == "none" else [encoding, "cls"]
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


def _of_sequences(lines: list[str], kind: Kind, encoding: str) -> Positions:
    """Return the positions of all files in a tar file of sequences, from the lines of its index.

    Each line lists the files of one sequence, which may have any number of frames.
    """
    last = [] if kind.labels == "none" else ["cls"]
    frames: list[tuple[int, int]] = []
    labels: list[tuple[int, int]] = []
    counts = []
    for number, line in enumerate(lines, 2):
        words = line.split()
        count = len(words) // WORDS - len(last)
        names = [f"{at:06d}.{encoding}" for at in range(count)]
        if count < 1 or words[::WORDS] != names + last:
            listed = " ".join(words[::WORDS])
            wanted = " ".join([f"000000.{encoding}, 000001.{encoding}, …", *last])
            raise ValueError(f"line {number} lists {listed[:60]}, not {wanted}")
        files = list(zip(map(int, words[1::WORDS]), map(int, words[2::WORDS]), strict=True))
        frames += files[:count]
        labels += files[count:]
        counts.append(count)
    return Positions(_pairs(frames), np.array([0, *itertools.accumulate(counts)]), _pairs(labels))


def _pairs(found: list[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(found, np.int64).reshape(-1, 2)


def scan(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
    """Yield the record of each index line, and faults of the shard or its index as text.

    It is a fault if the tar file has samples that the index does not list.
    """
    assert index is not None  # noqa: S101 - `Traits.indexed`: each shard has an index
    first, *lines = index.read_text(encoding="utf-8", errors="replace").split("\n")
    lines = lines[:-1]  # drop the empty text after the last newline
    if first != f"{INDEX_VERSION} {len(lines)}":
        yield f"index {index.name} has {len(lines):,} lines and begins with {first[:40]!r}"
    with path.open("rb") as tar:
        end: int | None = 0
        for line in lines:
            found, end = _read(tar.fileno(), index.name, line.split(" "), end, kind)
            yield found
        if end is not None and os.pread(tar.fileno(), BLOCK, end).strip(b"\0"):
            yield f"has more samples, from byte {end:,} on, than index {index.name} lists"


@dataclass(frozen=True)
class _Member:
    """A file in a tar file.

    Attributes:
        extension: end of the file name, which identifies the kind of file, such as `cls` or
            `000000.jpg`.
        stem: name without the extension.
        content: the bytes of the file.
        begin: byte position of its header.
        end: byte position of the header of the next file.
    """

    extension: str
    stem: str
    content: bytes
    begin: int
    end: int


def _read(
    tar: int, index: str, words: list[str], begin: int | None, kind: Kind
) -> tuple[Read, int | None]:
    """Return the record that an index line describes, and the byte position of its end.

    Args:
        tar: file descriptor of the tar file.
        index: name of the index, for messages.
        words: words of the index line.
        begin: end of the previous record, where this record must start, because a tar file has no
            gaps. It is None if the previous index line was wrong; then the start is not checked.
        kind: kind of the samples.

    Returns:
        The record and its end; the end is None if this index line is wrong.
    """
    found = [_member(tar, words[at : at + WORDS]) for at in range(0, len(words), WORDS)]
    parts = {part.extension: part for part in found if part is not None}
    frames = _frames(parts, kind)
    name = next((part.stem for part in parts.values()), "")
    labelled = len(parts) == len(frames) + (kind.labels != "none") and (
        "cls" in parts or kind.labels == "none"
    )
    if len(parts) != len(found) or not frames or not labelled:
        return Read(name, fault=f"is not where index {index} says, or cut off"), None
    members = list(parts.values())
    if any(one.stem != name for one in members):
        return Read(name, fault=f"is joined with files of another sample in index {index}"), None
    wanted = [members[0].begin if begin is None else begin, *(one.end for one in members[:-1])]
    if [one.begin for one in members] != wanted:
        fault = f"does not begin where the one before it in index {index} ends"
        return Read(name, fault=fault), members[-1].end
    labels = _labels(parts["cls"].content) if "cls" in parts else ()
    return Read(name, labels, frames), members[-1].end


def _frames(parts: dict[str, _Member], kind: Kind) -> tuple[bytes, ...]:
    """Return the single image of a sample, or its frames from 000000 up to the first gap.

    The result is empty if the sample has neither.
    """
    for encoding in IMAGES:
        if kind.sample == "image" and encoding in parts:
            return (parts[encoding].content,)
        names = (f"{at:06d}.{encoding}" for at in range(len(parts)))
        found = [parts[name].content for name in itertools.takewhile(parts.__contains__, names)]
        if found:
            return tuple(found)
    return ()


def _labels(text: bytes) -> tuple[int, ...]:
    """Return the class numbers in a `.cls` file; -1 stands for a word that is not a number."""
    return tuple(
        int(word) if word.isdigit() and len(word) < _DIGITS else -1 for word in text.split(b" ")
    ) if text else ()


def _member(tar: int, words: list[str]) -> _Member | None:
    """Return the tar member that the words of an index line describe, or None if they are wrong."""
    if len(words) != WORDS or not all(
        word.isascii() and word.isdigit() and len(word) < _DIGITS for word in words[1:3]
    ):
        return None
    extension, name = words[0], words[3]
    start, size = int(words[1]), int(words[2])
    if start < BLOCK or start + size > os.fstat(tar).st_size:
        return None
    header = os.pread(tar, BLOCK, start - BLOCK)
    right = (
        header[:100].rstrip(b"\0") == name.encode()
        and header[124:135] == f"{size:011o}".encode()
        and name.endswith(f".{extension}")
    )
    content = os.pread(tar, size, start) if right else b""
    end = start + size + -size % BLOCK
    stem = name.removesuffix(f".{extension}")
    return _Member(extension, stem, content, start - BLOCK, end) if right else None
