"""HDF5: all image files one after another in a contiguous data set, and where each begins.

`images` (uint8, bytes of all files), `offsets` (int64, samples + 1), `labels` (int64,
samples). The HDF5 library says where in the file `images` is; from there on the file
is mapped as any other, so that reading a sample needs no lock of the library.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trainkit.data.formats.mapped import Bytes, map_shard
from trainkit.exits import DataError


class Hdf5Shard:
    """One HDF5 file."""

    def __init__(self, folder: Path, entry: dict[str, Any], encoding: str) -> None:
        self.path, content = map_shard(folder, entry)
        try:
            with h5py.File(self.path, "r") as file:
                images = file["images"]
                start, size = images.id.get_offset(), images.size
                kind, dimensions = images.dtype, images.ndim
                self._offsets = file["offsets"][:].astype(np.int64)
                self._labels = file["labels"][:].astype(np.int64)
        except (OSError, KeyError, AttributeError, TypeError, ValueError) as error:
            raise DataError(
                f"shard {self.path} is not an HDF5 file with images, offsets and labels: {error}"
            ) from error
        if kind != np.uint8 or dimensions != 1 or (size and start is None):
            raise DataError(f"shard {self.path}: 'images' must be contiguous bytes, uncompressed")
        self._images = content[start : start + size] if size else content[:0]
        self._check(entry["samples"])

    def __len__(self) -> int:
        return len(self._labels)

    def encoded(self, number: int) -> Bytes:
        """Return the bytes of an image file, a view."""
        return self._images[self._offsets[number] : self._offsets[number + 1]]

    def label(self, number: int) -> int:
        """Return the class of a sample."""
        return int(self._labels[number])

    def describe(self, number: int) -> str:
        """Return shard, number and position among the images' bytes."""
        return f"{self.path}: record {number} (at byte {self._offsets[number]} of 'images')"

    def _check(self, samples: int) -> None:
        """Refuse tables that do not fit to each other, the images or `dataset.json`."""
        if len(self._labels) != samples or len(self._offsets) != samples + 1:
            raise DataError(
                f"shard {self.path} has {len(self._labels)} labels and {len(self._offsets)} "
                f"offsets, dataset.json says {samples} samples"
            )
        ordered = (np.diff(self._offsets) >= 0).all() and self._offsets[0] >= 0
        if not ordered or self._offsets[-1] > len(self._images):
            raise DataError(f"shard {self.path}: 'offsets' does not fit to 'images'")
