"""The samples of a split, through all of its shards, checked when they are read.

`formats` knows where in a shard a record is. The shards are mapped into memory, so that
a record is a view of its bytes: no read, no copy, any order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainkit.data import formats
from trainkit.data.formats import Shard
from trainkit.data.formats.mapped import Bytes
from trainkit.data.kinds import Kind
from trainkit.exits import DataError


class Records:
    """The samples of one split, numbered through its shards in order.

    Args:
        folder: of the data set.
        form: its format.
        kind: what its samples are.
        classes: how many classes it has.
        entries: of the shards in `dataset.json`.
    """

    def __init__(
        self, folder: Path, form: str, kind: Kind, classes: int, entries: Sequence[dict[str, Any]]
    ) -> None:
        shard = formats.load(form)
        self._kind, self._classes = kind, classes
        self._shards = [shard(folder, entry, kind) for entry in entries]
        self._ends = list(accumulate(len(shard) for shard in self._shards))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def encoded(self, number: int) -> Bytes:
        """Return the bytes of the image file of sample `number`, a view into its shard.

        Raises:
            DataError: the record is malformed.
        """
        return self.frames(number)[0]

    def frames(self, number: int) -> list[Bytes]:
        """Return the bytes of all image files of sample `number` in order, at least one.

        Raises:
            DataError: the record is malformed, or has not as many as its kind.
        """
        shard, within = self._find(number)
        found = shard.frames(within)
        if len(found) == 1 or (found and self._kind.sample == "sequence"):
            return found
        wanted = "one" if self._kind.sample == "image" else "one or more"
        raise DataError(
            f"{shard.describe(within)} has {len(found)} images, by dataset.json {wanted}"
        )

    def label(self, number: int) -> int:
        """Return the class of sample `number`, of a data set with one for each.

        Raises:
            DataError: the record is malformed, or its label is no class of the data set.
        """
        return self.labels(number)[0]

    def labels(self, number: int) -> list[int]:
        """Return the classes of sample `number`, increasing: one, any number, or none.

        Raises:
            DataError: the record is malformed, or its labels are no classes of the data set.
        """
        if self._kind.labels == "none":
            return []
        shard, within = self._find(number)
        found = shard.labels(within)
        for label in found:
            if not 0 <= label < self._classes:
                raise DataError(
                    f"{shard.describe(within)}: its class is {label}, "
                    f"not a number from 0 to {self._classes - 1}"
                )
        if self._kind.labels == "class" and len(found) != 1:
            raise DataError(f"{shard.describe(within)} has {len(found)} classes, not one")
        if any(a >= b for a, b in pairwise(found)):
            listed = ", ".join(map(str, found))
            raise DataError(f"{shard.describe(within)}: its classes {listed} do not increase")
        return found

    def vector(self, number: int) -> NDArray[np.float32]:
        """Return 1 for each class that sample `number` has, else 0, (classes,).

        Raises:
            DataError: as by `labels`.
        """
        found = np.zeros(self._classes, np.float32)
        found[self.labels(number)] = 1
        return found

    def describe(self, number: int) -> str:
        """Return the shard and the record of sample `number`, for an error message."""
        shard, number = self._find(number)
        return shard.describe(number)

    def _find(self, number: int) -> tuple[Shard, int]:
        """Return the shard that has sample `number`, and its number there."""
        at = bisect_right(self._ends, number)
        return self._shards[at], number - (self._ends[at - 1] if at else 0)
