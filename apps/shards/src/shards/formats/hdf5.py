"""HDF5 shards: concatenated image files, their offsets, and the classes.

A shard has the arrays `images` (uint8, one contiguous block, so that a reader can map it into
memory), `offsets` (int64, number of images + 1) and `labels` (int64). If samples have any number
of classes, `labels` concatenates the classes of all samples, and `label_offsets` holds the start of
each sample's classes. `sample_offsets` holds the first frame of each sequence. `Reader` gets the
position of `images` in the file from the HDF5 library and then maps the file itself, so that
reading a sample does not need the global lock of the library.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from shards.description import Shard
from shards.errors import ShardError
from shards.files import synced
from shards.formats.mapped import map_shard
from shards.formats.records import Bytes, Read, Record
from shards.kinds import Kind

_BLOCK = 1 << 24
_SPARE = 1 << 16  # bytes reserved for metadata, which need less


class Writer:
    """A writer of the shard `STEM.h5`.

    The size of a contiguous HDF5 block must be known in advance. Therefore the images are first
    collected in a temporary file, and writing needs twice the disk space of the shard.
    """

    def __init__(self, folder: Path, stem: str, kind: Kind) -> None:
        self._kind = kind
        self.file, self.index = f"{stem}.h5", None
        self._path = folder / self.file
        self._images = self._path.with_suffix(".images")
        self._out = self._images.open("wb")
        self._offsets, self._labels = [0], list[int]()
        self._label_offsets, self._sample_offsets = [0], [0]

    def add(self, record: Record) -> None:
        """Append one sample."""
        for frame in record.frames:
            self._out.write(frame)
            self._offsets.append(self._offsets[-1] + len(frame))
        self._labels += record.labels
        self._label_offsets.append(len(self._labels))
        self._sample_offsets.append(len(self._offsets) - 1)

    def finish(self) -> None:
        """Write the HDF5 file, now that the total size of the images is known."""
        self.close()
        numbers = sum(map(len, self._numbers().values()))
        spare, size = self._path.with_suffix(".spare"), self._offsets[-1] + 8 * numbers
        with spare.open("wb") as file:  # a full disk is detected before HDF5 writes
            os.posix_fallocate(file.fileno(), 0, size + _SPARE)
            file.truncate(_SPARE)
        try:
            self._fill(spare)
        except (OSError, RuntimeError) as error:  # RuntimeError: a failure on closing
            number = getattr(error, "errno", None) or errno.EIO
            raise OSError(number, f"HDF5 failed: {os.strerror(number)}") from error
        self._images.unlink()
        synced(self._path)

    def _fill(self, spare: Path) -> None:
        with h5py.File(self._path, "w") as file, self._images.open("rb") as images:
            try:
                block = file.create_dataset("images", (self._offsets[-1],), np.uint8)
                at = 0
                while part := images.read(_BLOCK):
                    block[at : at + len(part)] = np.frombuffer(part, np.uint8)
                    at += len(part)
                for name, numbers in self._numbers().items():
                    file[name] = np.array(numbers, np.int64)
            finally:
                # HDF5 crashes if the disk is full when it closes a file: free the reserve first.
                spare.unlink()

    def _numbers(self) -> dict[str, list[int]]:
        everything = {
            "offsets": self._offsets, "labels": self._labels,
            "label_offsets": self._label_offsets, "sample_offsets": self._sample_offsets,
        }
        return {name: everything[name] for name in _names(self._kind)}

    def close(self) -> None:
        """Close the temporary file of the images."""
        self._out.close()


def _names(kind: Kind) -> list[str]:
    """Return the names of the arrays that samples of `kind` need in addition to `images`."""
    return ["offsets", *(["labels"] if kind.labels != "none" else []),
            *(["label_offsets"] if kind.labels == "multi" else []),
            *(["sample_offsets"] if kind.sample == "sequence" else [])]


class Reader:
    """A reader of the samples of one HDF5 file."""

    def __init__(self, folder: Path, entry: Shard, kind: Kind, encoding: str) -> None:
        self.path, content = map_shard(folder, entry)
        each = np.arange(entry.samples + 1)
        self._frames = self._labels_at = each  # start of the entries of each sample
        self._labels = np.empty(0, np.int64)
        try:
            with h5py.File(self.path, "r") as file:
                images = file["images"]
                start, size = images.id.get_offset(), images.size
                element, dimensions = images.dtype, images.ndim
                self._offsets = _table(file, "offsets")
                if kind.sample == "sequence":
                    self._frames = _table(file, "sample_offsets")
                if kind.labels != "none":
                    self._labels = _table(file, "labels")
                if kind.labels == "multi":
                    self._labels_at = _table(file, "label_offsets")
        except (OSError, KeyError, AttributeError, TypeError, ValueError) as error:
            raise ShardError(
                f"shard {self.path} is not an HDF5 file with the images, offsets and labels "
                f"that dataset.json requires: {error}"
            ) from error
        if element != np.uint8 or dimensions != 1 or (size and start is None):
            raise ShardError(f"shard {self.path}: 'images' must be contiguous bytes, uncompressed")
        self._images = content[start : start + size] if size else content[:0]
        self._check(entry.samples, kind)

    def __len__(self) -> int:
        return len(self._frames) - 1

    def frames(self, number: int) -> list[Bytes]:
        """Return the encoded image files of a sample as views of their bytes."""
        first, end = self._frames[number : number + 2].tolist()
        ends = self._offsets[first : end + 1].tolist()
        return [self._images[a:b] for a, b in itertools.pairwise(ends)]

    def labels(self, number: int) -> list[int]:
        """Return the class numbers of a sample."""
        first, end = self._labels_at[number : number + 2].tolist()
        found: list[int] = self._labels[first:end].tolist()
        return found

    def describe(self, number: int) -> str:
        """Return shard, record number and position in `images` as a text for an error message."""
        start = self._offsets[self._frames[number]]
        return f"{self.path}: record {number} (at byte {start} of 'images')"

    def _check(self, samples: int, kind: Kind) -> None:
        """Raise ShardError if a table contradicts another table, the images or `dataset.json`."""
        images = len(self._offsets) - 1
        fit = _parts(self._frames, samples, images)
        if kind.labels != "none":
            fit = fit and _parts(self._labels_at, samples, len(self._labels))
        if not fit:
            raise ShardError(
                f"shard {self.path} has {len(self._labels)} labels and {images} images, which "
                f"its tables do not divide among the {samples} samples in dataset.json"
            )
        ordered = (np.diff(self._offsets) >= 0).all() and self._offsets[0] >= 0
        if not ordered or self._offsets[-1] > len(self._images):
            raise ShardError(f"shard {self.path}: 'offsets' does not fit 'images'")


def _table(file: Any, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = file[name][:].astype(np.int64)
    return found


def _parts(offsets: NDArray[np.int64], count: int, end: int) -> bool:
    """Return whether `offsets` divide the range from 0 to `end` into `count` consecutive parts."""
    if len(offsets) != count + 1:
        return False
    return bool(offsets[0] == 0 and offsets[-1] == end and (np.diff(offsets) >= 0).all())


def scan(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
    """Yield every record of a shard in order, and faults of the shard as text."""
    try:
        with h5py.File(path, "r") as file:
            images, found = file["images"], {name: file[name] for name in _names(kind)}
            if any(one.dtype != np.int64 or one.nbytes > path.stat().st_size
                   for one in found.values()):
                yield "its offsets and labels are not int64 numbers, or more than the file can hold"
                return
            yield from _records(images, {name: one[:].tolist() for name, one in found.items()})
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        yield f"cannot be read by HDF5: {error}"


def _records(images: h5py.Dataset, numbers: dict[str, list[int]]) -> Iterator[Read | str]:
    if images.dtype != np.uint8 or images.ndim != 1 or images.chunks is not None:
        yield "its images are not one contiguous block of bytes"
        return
    offsets = numbers["offsets"]
    frames = numbers.get("sample_offsets", list(range(len(offsets))))
    labels = numbers.get("labels", [])
    each = list(range(len(frames))) if labels or "labels" in numbers else [0] * len(frames)
    first = numbers.get("label_offsets", each)
    if not (_covers(offsets, len(images)) and _covers(frames, len(offsets) - 1)
            and _covers(first, len(labels)) and len(first) == len(frames)):
        yield (f"its {len(offsets):,} offsets do not fit to {len(labels):,} labels"
               f" and {len(images):,} bytes of images")
        return
    for own, more in zip(itertools.pairwise(frames), itertools.pairwise(first), strict=True):
        places = list(itertools.pairwise(offsets[own[0] : own[1] + 1]))
        bad = [place for place in (*places, own, more) if not 0 <= place[0] <= place[1]]
        if bad:
            yield Read("", fault=f"ends at {bad[0][1]:,}, before its begin at {bad[0][0]:,}")
        else:
            yield Read("", tuple(labels[slice(*more)]),
                       tuple(images[start:end].tobytes() for start, end in places))


def _covers(offsets: list[int], length: int) -> bool:
    return bool(offsets) and [offsets[0], offsets[-1]] == [0, length]
