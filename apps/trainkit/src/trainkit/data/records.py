"""The samples of a split from all of its shards; each sample is checked when it is read.

`shards.formats` locates a record in a shard. The shards are mapped into memory. Therefore a record
is a view of its bytes, and reading in any order needs no system call and no copy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shards import formats
from shards.description import Shard
from shards.errors import ShardError
from shards.formats.records import Bytes, Reader
from shards.kinds import ImageFormat, Kind
from trainkit.data.folder import FOLDER, ImageFolder, Images
from trainkit.exits import DataError


class Records:
    """The samples of one split, numbered consecutively through its shards.

    Args:
        folder: folder of the data set.
        form: format of the data set.
        kind: kind of samples and labels.
        classes: number of classes.
        entries: entries of the shards in `dataset.json`.
        encoding: file name extension of the images.

    Raises:
        DataError: a shard is missing or wrong, or a package that reads it is not installed.
    """

    def __init__(
        self, folder: Path, form: ImageFormat | Literal["folder"], kind: Kind, classes: int,
        entries: Sequence[Shard | Images], encoding: str = "",
    ) -> None:
        self._kind, self._classes = kind, classes
        try:
            self._shards = _opened(folder, form, kind, entries, encoding)
        except ShardError as error:
            raise DataError(str(error), code="data-damaged") from error
        self._ends = list(accumulate(len(shard) for shard in self._shards))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def encoded(self, number: int) -> Bytes:
        """Return the encoded image file of sample `number`, a view into its shard.

        Raises:
            DataError: the record is malformed.
        """
        return self.frames(number)[0]

    def frames(self, number: int) -> list[Bytes]:
        """Return the encoded image files of sample `number` in order; the list is never empty.

        Raises:
            DataError: the record is malformed, or its number of images is not allowed for the kind
                of sample.
        """
        shard, within = self._find(number)
        try:
            found = shard.frames(within)
        except ShardError as error:
            raise DataError(str(error), code="data-damaged") from error
        if len(found) == 1 or (found and self._kind.sample == "sequence"):
            return found
        wanted = "one" if self._kind.sample == "image" else "one or more"
        raise DataError(
            f"{shard.describe(within)} has {len(found)} images, by dataset.json {wanted}",
            code="record-invalid",
        )

    def label(self, number: int) -> int:
        """Return the class number of sample `number`; the data set must have one class per sample.

        Raises:
            DataError: the record is malformed, or its label is not a class of the data set.
        """
        return self.labels(number)[0]

    def labels(self, number: int) -> list[int]:
        """Return the class numbers of sample `number` in increasing order.

        Depending on the kind of labels, the list has exactly one element, any number of elements,
        or no elements.

        Raises:
            DataError: the record is malformed, or its labels are not classes of the data set.
        """
        if self._kind.labels == "none":
            return []
        shard, within = self._find(number)
        try:
            found = shard.labels(within)
        except ShardError as error:
            raise DataError(str(error), code="data-damaged") from error
        for label in found:
            if not 0 <= label < self._classes:
                raise DataError(
                    f"{shard.describe(within)}: its class is {label}, "
                    f"not a number from 0 to {self._classes - 1}",
                    code="record-invalid",
                )
        if self._kind.labels == "class" and len(found) != 1:
            raise DataError(
                f"{shard.describe(within)} has {len(found)} classes, not one", code="record-invalid"
            )
        if any(a >= b for a, b in pairwise(found)):
            listed = ", ".join(map(str, found))
            raise DataError(
                f"{shard.describe(within)}: its classes {listed} do not increase",
                code="record-invalid",
            )
        return found

    def vector(self, number: int) -> NDArray[np.float32]:
        """Return a vector, (classes,), with 1 for each class of sample `number` and 0 elsewhere.

        Raises:
            DataError: the record is malformed, or its labels are not classes of the data set.
        """
        found = np.zeros(self._classes, np.float32)
        found[self.labels(number)] = 1
        return found

    def describe(self, number: int) -> str:
        """Return the shard and the record of sample `number`, for an error message."""
        shard, number = self._find(number)
        return shard.describe(number)

    def _find(self, number: int) -> tuple[Reader, int]:
        """Return the reader of the shard with sample `number`, and the sample's index in it."""
        at = bisect_right(self._ends, number)
        return self._shards[at], number - (self._ends[at - 1] if at else 0)


def _opened(
    folder: Path, form: ImageFormat | Literal["folder"], kind: Kind,
    entries: Sequence[Shard | Images], encoding: str,
) -> list[Reader]:
    """Return a reader for each of `entries`: shards, or the images of a folder."""
    if form == FOLDER:
        return [ImageFolder(folder, one) for one in entries if isinstance(one, Images)]
    try:
        reader = formats.load(form).Reader
    except ModuleNotFoundError as error:
        raise DataError(
            f"data sets in the format {form} need the Python package {error.name}, "
            "which is not installed here; `trimaran data pack` writes others",
            code="library-missing",
        ) from error
    return [reader(folder, one, kind, encoding) for one in entries if isinstance(one, Shard)]
