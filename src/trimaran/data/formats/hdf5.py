"""HDF5: all image files one after another, where each begins, and the classes.

`images` (uint8, one contiguous block, so that a reader may map it into memory), `offsets`
(int64, one more than there are samples) and `labels` (int64).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from trimaran.data.formats.records import Read, Record, synced

READS_DAMAGED = True
INDEXED = False
_BLOCK = 1 << 24
_SPARE = 1 << 16  # bytes, more than the metadata take


class Writer:
    """Writes `STEM.h5`; needs twice its space, for a contiguous block has its size beforehand."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.file, self.index = f"{stem}.h5", None
        self._path = folder / self.file
        self._images = self._path.with_suffix(".images")
        self._out = self._images.open("wb")
        self._offsets, self._labels = [0], list[int]()

    def add(self, record: Record) -> None:
        """Append one sample."""
        self._out.write(record.image)
        self._offsets.append(self._offsets[-1] + len(record.image))
        self._labels.append(record.label)

    def finish(self) -> None:
        """Write the file, now that the size of its largest part is known."""
        self.close()
        spare, size = self._path.with_suffix(".spare"), self._offsets[-1] + 16 * len(self._offsets)
        with spare.open("wb") as file:  # whether there is space is found out while it is harmless
            os.posix_fallocate(file.fileno(), 0, size + _SPARE)
            file.truncate(_SPARE)
        try:
            self._fill(spare)
        except (OSError, RuntimeError) as error:  # RuntimeError: of what failed at the end
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
                file["offsets"] = np.array(self._offsets, np.int64)
                file["labels"] = np.array(self._labels, np.int64)
            finally:
                # HDF5 crashes where it cannot write when it closes a file: give it some room.
                spare.unlink()

    def close(self) -> None:
        """Let go of the open file."""
        self._out.close()


def read(path: Path, index: Path | None) -> Iterator[Read | str]:
    """Yield every record between two neighbouring offsets."""
    try:
        with h5py.File(path, "r") as file:
            images, offsets, labels = (file[name] for name in ("images", "offsets", "labels"))
            if any(one.dtype != np.int64 or one.nbytes > path.stat().st_size
                   for one in (offsets, labels)):
                yield "its offsets and labels are no int64 numbers, or more than the file can hold"
                return
            yield from _records(images, offsets[:].tolist(), labels[:].tolist())
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        yield f"cannot be read by HDF5: {error}"


def _records(images: h5py.Dataset, offsets: list[int], labels: list[int]) -> Iterator[Read | str]:
    if images.dtype != np.uint8 or images.ndim != 1 or images.chunks is not None:
        yield "its images are not one contiguous block of bytes"
        return
    if len(offsets) != len(labels) + 1 or [offsets[0], offsets[-1]] != [0, len(images)]:
        yield (f"its {len(offsets):,} offsets do not fit to {len(labels):,} labels"
               f" and {len(images):,} bytes of images")
        return
    for label, start, end in zip(labels, offsets[:-1], offsets[1:], strict=True):
        if not 0 <= start <= end:
            yield Read("", fault=f"ends at {end:,}, before its begin at {start:,}")
        else:
            yield Read("", label, images[start:end].tobytes())
