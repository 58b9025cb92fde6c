"""A data set: what `dataset.json` says, and the samples of its splits, checked when opened.

    <folder>/dataset.json, <split>-NNNNN.<ending>, for some formats <split>-NNNNN.idx

`formats` knows where in a shard a record is. The shards are mapped into memory, so that
a record is a view of its bytes: no read, no copy, any order. A folder of images without
`dataset.json` is read as it is.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from trainkit.data.formats import SHARDS, Shard
from trainkit.data.formats.images import list_splits
from trainkit.data.formats.mapped import Bytes
from trainkit.exits import DataError

MODES = {1: "grey", 3: "RGB"}
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Dataset:
    """What `dataset.json` says; sizes in pixels, `mean` and `std` per channel in 0..1.

    `height` and `width` are None for images of varying sizes. `format` is a key of
    `formats.SHARDS`.
    """

    folder: Path
    format: str
    name: str
    classes: tuple[str, ...]
    channels: int
    height: int | None
    width: int | None
    encoding: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    splits: dict[str, list[dict[str, Any]]]

    def records(self, split: str) -> Records:
        """Return the samples of `split`, all shards checked against `dataset.json`."""
        if split not in self.splits:
            known = ", ".join(sorted(self.splits))
            raise DataError(f"{self.folder / 'dataset.json'}: no split '{split}' (it has {known})")
        try:
            return Records(self, self.splits[split])
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{self.folder / 'dataset.json'}: missing or malformed entry ({error}) "
                f"in a shard of '{split}'"
            ) from error

    def fingerprint(self) -> str:
        """Return the name with a hash of all shards' checksums: equal only for equal data.

        (Of a plain image folder: for equal names of files.)
        """
        sums = [entry["sha256"] for shards in self.splits.values() for entry in shards]
        return f"{self.name} {hashlib.sha256(' '.join(sums).encode()).hexdigest()[:12]}"

    def evaluation_split(self) -> str:
        """Return the name of the split to evaluate on: "val" where there is one, else "test"."""
        return "val" if "val" in self.splits else "test"


def open_dataset(folder: Path) -> Dataset:
    """Return the data set in `folder`: a packed one, or a folder of images (`formats.images`).

    Raises:
        DataError: the folder or its `dataset.json` is missing or malformed.
    """
    path = folder / "dataset.json"
    if not path.exists() and (folder / "train").is_dir():
        classes, listed = list_splits(folder)
        mean, std = IMAGENET_MEAN, IMAGENET_STD
        name = folder.resolve().name
        return Dataset(folder, "folder", name, classes, 3, None, None, "", mean, std, listed)
    try:
        document = json.loads(path.read_text())
        if document["schema"] != 1 or document["format"] not in SHARDS.keys() - {"folder"}:
            known = ", ".join(sorted(SHARDS.keys() - {"folder"}))
            raise DataError(f"{path}: needs schema 1 and a format of {known}")
        dataset = _from_document(folder, document)
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist; --data is a folder that `trimaran data` made, "
            "or one with train/CLASS/*.jpg and val/CLASS/*.jpg"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: missing or malformed entry ({error})") from error
    if dataset.channels not in MODES or len(dataset.mean) != dataset.channels:
        raise DataError(f"{path}: needs 1 or 3 channels, and a mean and std for each")
    return dataset


def _from_document(folder: Path, document: dict[str, Any]) -> Dataset:
    image = document["image"]
    return Dataset(
        folder=folder,
        format=document["format"],
        name=document["name"],
        classes=tuple(document["classes"]),
        channels=image["channels"],
        height=image["height"],
        width=image["width"],
        encoding=image["encoding"],
        mean=tuple(image["mean"]),
        std=tuple(image["std"]),
        splits={name: split["shards"] for name, split in document["splits"].items()},
    )


class Records:
    """The samples of one split, numbered through its shards in order."""

    def __init__(self, dataset: Dataset, entries: Sequence[dict[str, Any]]) -> None:
        self.dataset = dataset
        kind = SHARDS[dataset.format]
        self._shards = [kind(dataset.folder, entry, dataset.encoding) for entry in entries]
        self._ends = list(accumulate(len(shard) for shard in self._shards))
        if not self._ends or not self._ends[-1]:
            raise DataError(f"{dataset.folder / 'dataset.json'}: a split without samples")

    def __len__(self) -> int:
        return self._ends[-1]

    def encoded(self, number: int) -> Bytes:
        """Return the bytes of the image file of sample `number`, a view into its shard.

        Raises:
            DataError: the record is malformed.
        """
        shard, number = self._find(number)
        return shard.encoded(number)

    def label(self, number: int) -> int:
        """Return the class of sample `number`.

        Raises:
            DataError: the record is malformed, or its label is no class of the data set.
        """
        shard, within = self._find(number)
        label, classes = shard.label(within), len(self.dataset.classes)
        if 0 <= label < classes:
            return label
        raise DataError(
            f"{shard.describe(within)}: its class is {label}, not a number from 0 to {classes - 1}"
        )

    def describe(self, number: int) -> str:
        """Return the shard and the record of sample `number`, for an error message."""
        shard, number = self._find(number)
        return shard.describe(number)

    def _find(self, number: int) -> tuple[Shard, int]:
        """Return the shard that has sample `number`, and its number there."""
        at = bisect_right(self._ends, number)
        return self._shards[at], number - (self._ends[at - 1] if at else 0)
