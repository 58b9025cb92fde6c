"""HDF5: all image files one after another in a contiguous data set, and where each begins.

`images` (uint8, bytes of all files), `offsets` (int64, images + 1), `labels` (int64). Where a
sample has any number of classes, `label_offsets` (int64, samples + 1) says where those of each
begin; `sample_offsets` (int64, samples + 1) says so of the frames of sequences.
The HDF5 library says where in the file `images` is; from there on the file
is mapped as any other, so that reading a sample needs no lock of the library.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from trainkit.data.formats.mapped import Bytes, map_shard
from trainkit.data.kinds import Kind
from trainkit.exits import DataError


class Hdf5Shard:
    """One HDF5 file."""

    def __init__(self, folder: Path, entry: dict[str, Any], kind: Kind) -> None:
        self.path, content = map_shard(folder, entry)
        each = np.arange(entry["samples"] + 1)
        self._frames = self._labels_at = each  # where those of each sample begin
        self._labels = np.empty(0, np.int64)
        try:
            with h5py.File(self.path, "r") as file:
                images = file["images"]
                start, size = images.id.get_offset(), images.size
                element, dimensions = images.dtype, images.ndim
                self._offsets = _numbers(file, "offsets")
                if kind.sample == "sequence":
                    self._frames = _numbers(file, "sample_offsets")
                if kind.labels != "none":
                    self._labels = _numbers(file, "labels")
                if kind.labels == "multi":
                    self._labels_at = _numbers(file, "label_offsets")
        except (OSError, KeyError, AttributeError, TypeError, ValueError) as error:
            raise DataError(
                f"shard {self.path} is not an HDF5 file with images, offsets and labels as "
                f"dataset.json says: {error}"
            ) from error
        if element != np.uint8 or dimensions != 1 or (size and start is None):
            raise DataError(f"shard {self.path}: 'images' must be contiguous bytes, uncompressed")
        self._images = content[start : start + size] if size else content[:0]
        self._check(entry["samples"], kind)

    def __len__(self) -> int:
        return len(self._frames) - 1

    def frames(self, number: int) -> list[Bytes]:
        """Return the bytes of the image files of a sample, views."""
        first, end = self._frames[number : number + 2].tolist()
        ends = self._offsets[first : end + 1].tolist()
        return [self._images[a:b] for a, b in pairwise(ends)]

    def labels(self, number: int) -> list[int]:
        """Return the classes of a sample."""
        first, end = self._labels_at[number : number + 2].tolist()
        found: list[int] = self._labels[first:end].tolist()
        return found

    def describe(self, number: int) -> str:
        """Return shard, number and position among the images' bytes."""
        start = self._offsets[self._frames[number]]
        return f"{self.path}: record {number} (at byte {start} of 'images')"

    def _check(self, samples: int, kind: Kind) -> None:
        """Refuse tables that do not fit to each other, the images or `dataset.json`."""
        images = len(self._offsets) - 1
        fit = _parts(self._frames, samples, images)
        if kind.labels != "none":
            fit = fit and _parts(self._labels_at, samples, len(self._labels))
        if not fit:
            raise DataError(
                f"shard {self.path} has {len(self._labels)} labels and {images} images, which "
                f"its tables do not share out among the {samples} samples that dataset.json says"
            )
        ordered = (np.diff(self._offsets) >= 0).all() and self._offsets[0] >= 0
        if not ordered or self._offsets[-1] > len(self._images):
            raise DataError(f"shard {self.path}: 'offsets' does not fit to 'images'")


def _numbers(file: Any, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = file[name][:].astype(np.int64)
    return found


def _parts(offsets: NDArray[np.int64], count: int, end: int) -> bool:
    """Return whether `offsets` part what goes from 0 to `end` into `count`."""
    if len(offsets) != count + 1:
        return False
    return bool(offsets[0] == 0 and offsets[-1] == end and (np.diff(offsets) >= 0).all())
