"""A data set: what `dataset.json` says of it; its splits are opened as `records`.

    <folder>/dataset.json, <split>-NNNNN.<ending>, for some formats <split>-NNNNN.idx

A folder of images without `dataset.json` is read as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shards import description, formats
from shards.description import DATASET, Shard
from shards.entries import Malformed
from shards.kinds import FormatName, Kind
from trainkit.data import folder as folders
from trainkit.data.folder import FOLDER, Images
from trainkit.data.records import Records
from trainkit.exits import DataError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Dataset:
    """What `dataset.json` says; sizes in pixels, `mean` and `std` per channel in 0..1.

    `height` and `width` are None for images of varying sizes. `format` is that of `dataset.json`,
    or `FOLDER`. `classes` may be empty where `kind.labels` is "none". `encoding` is the ending of
    the image files, "" where it varies.
    """

    folder: Path
    format: FormatName | Literal["folder"]
    name: str
    classes: tuple[str, ...]
    channels: int
    height: int | None
    width: int | None
    kind: Kind
    mean: tuple[float, ...]
    std: tuple[float, ...]
    encoding: str
    splits: Mapping[str, Sequence[Shard | Images]]

    def records(self, split: str) -> Records:
        """Return the samples of `split`, all shards checked against `dataset.json`."""
        path = self.folder / DATASET
        if split not in self.splits:
            known = ", ".join(sorted(self.splits))
            raise DataError(f"{path}: no split '{split}' (it has {known})")
        records = Records(self.folder, self.format, self.kind, len(self.classes),
                          self.splits[split], self.encoding)
        if not len(records):
            raise DataError(f"{path}: a split without samples")
        return records

    def fingerprint(self) -> str:
        """Return the name with a hash of all shards' checksums: equal only for equal data.

        (Of a plain image folder: for equal names of files.)
        """
        sums = [entry.sha256 for shards in self.splits.values() for entry in shards]
        return f"{self.name} {hashlib.sha256(' '.join(sums).encode()).hexdigest()[:12]}"

    def evaluation_split(self) -> str:
        """Return the name of the split to evaluate on: "val" where there is one, else "test"."""
        return "val" if "val" in self.splits else "test"


def open_dataset(
    folder: Path,
    *,
    labels: Collection[str] = ("class",),
    samples: Collection[str] = ("image",),
) -> Dataset:
    """Return the data set in `folder`: a packed one, or a folder of images (`formats.folder`).

    Args:
        folder: where it is.
        labels: what the caller can take samples to be labelled with.
        samples: what it can take them to be.

    Raises:
        DataError: the folder or its `dataset.json` is missing or malformed, or its samples
            are of another kind.
    """
    path = folder / DATASET
    if not path.exists() and (folder / "train").is_dir():
        classes, listed = folders.list_splits(folder)
        mean, std = IMAGENET_MEAN, IMAGENET_STD
        name = folder.resolve().name
        return Dataset(folder, FOLDER, name, classes, 3, None, None, Kind(), mean, std, "", listed)
    dataset = _read(folder, path)
    _check_kind(dataset, path, labels, samples)
    return dataset


def _read(folder: Path, path: Path) -> Dataset:
    try:
        # A later packer may have more to say of a data set than this version knows.
        found = description.parse(json.loads(path.read_text(encoding="utf-8")), strict=False)
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist; --data is a folder that `trimaran data` made, "
            "or one with train/CLASS/*.jpg and val/CLASS/*.jpg"
        ) from error
    except Malformed as error:
        faults = (
            f"'{'.'.join(map(str, one.where))}' {one.problem}"
            + f" (found: {one.value!r:.60})" * one.told for one in error.faults
        )
        raise DataError(f"{path}: {'; '.join(faults)}") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    image = found.image
    if not len(image.mean) == len(image.std) == image.channels:
        raise DataError(f"{path}: needs a mean and a std for each of {image.channels} channels")
    return Dataset(
        folder=folder,
        format=found.format,
        name=found.name,
        classes=tuple(found.classes),
        channels=image.channels,
        height=image.height,
        width=image.width,
        kind=found.kind,
        mean=tuple(image.mean),
        std=tuple(image.std),
        encoding=image.encoding,
        splits={name: split.shards for name, split in found.splits.items()},
    )


def _check_kind(
    dataset: Dataset, path: Path, labels: Collection[str], samples: Collection[str]
) -> None:
    """Refuse kinds of samples that the caller cannot use or the format cannot hold."""
    kind = dataset.kind
    for key, value, wanted in (("labels", kind.labels, labels), ("sample", kind.sample, samples)):
        if value not in wanted:
            raise DataError(
                f"{path}: '{key}' is {value}; here data sets are read where it is "
                + " or ".join(wanted)
            )
    if dataset.format != FOLDER and not formats.can_hold(dataset.format, kind):
        raise DataError(
            f"{path}: labels {kind.labels}, sample {kind.sample} cannot be in {dataset.format}: "
            "its published layout holds one class and one image"
        )
    if not dataset.classes and kind.labels != "none":
        raise DataError(f"{path}: no classes, and 'labels' is {kind.labels}")
