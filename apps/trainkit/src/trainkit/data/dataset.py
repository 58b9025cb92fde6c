"""A data set and its description, `dataset.json`; `Dataset.records` opens a split.

    <folder>/dataset.json, <split>-NNNNN.<suffix>, for some formats <split>-NNNNN.idx

A folder of images without `dataset.json` can be read, too.
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
from shards.kinds import ImageFormat, Kind
from trainkit.data import folder as folders
from trainkit.data.folder import FOLDER, Images
from trainkit.data.records import Records
from trainkit.exits import DataError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Dataset:
    """The description of a data set.

    Attributes:
        folder: folder of the data set.
        format: format in `dataset.json`, or `FOLDER` for a folder of images.
        name: name of the data set.
        classes: names of the classes; may be empty if `kind.labels` is "none".
        channels: channels of the images, 1 or 3.
        height: height of the images in pixels; None if it varies.
        width: width of the images in pixels; None if it varies.
        kind: kind of samples and labels.
        mean: mean of each channel, in 0..1.
        std: standard deviation of each channel, in 0..1.
        encoding: file name extension of the images; "" if it varies.
        splits: split name -> its shards; for a folder of images, a list of one `Images` object.
    """

    folder: Path
    format: ImageFormat | Literal["folder"]
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
        """Return the samples of `split`, after a check of all its shards against `dataset.json`.

        Raises:
            DataError: the split or a shard is missing, wrong or empty.
        """
        path = self.folder / DATASET
        if split not in self.splits:
            known = ", ".join(sorted(self.splits))
            raise DataError(f"{path}: no split '{split}' (it has {known})", code="split-missing")
        records = Records(self.folder, self.format, self.kind, len(self.classes),
                          self.splits[split], self.encoding)
        if not len(records):
            raise DataError(f"{path}: a split without samples", code="split-empty")
        return records

    def fingerprint(self) -> str:
        """Return a text that identifies the data: the name, and a hash of all shard checksums.

        For a folder of images, the hash covers only the names of the files.
        """
        sums = [entry.sha256 for shards in self.splits.values() for entry in shards]
        return fingerprint(self.name, sums)

    def evaluation_split(self) -> str:
        """Return the name of the split to evaluate on: "val" if it exists, else "test"."""
        return evaluation_split(self.splits)


def fingerprint(name: str, checksums: Sequence[str]) -> str:
    """Return a text that identifies a data set by its name and the SHA-256 of all its shards."""
    return f"{name} {hashlib.sha256(' '.join(checksums).encode()).hexdigest()[:12]}"


def evaluation_split(splits: Collection[str]) -> str:
    """Return the name of the split to evaluate on: "val" if it exists, else "test"."""
    return "val" if "val" in splits else "test"


def open_dataset(
    folder: Path,
    *,
    labels: Collection[str] = ("class",),
    samples: Collection[str] = ("image",),
) -> Dataset:
    """Return the data set in `folder`: packed data, or a folder of images (`trainkit.data.folder`).

    Args:
        folder: folder of the data set.
        labels: kinds of labels that the caller supports.
        samples: kinds of samples that the caller supports.

    Raises:
        DataError: the folder or its `dataset.json` is missing or malformed, or the caller does not
            support its samples.
    """
    path = folder / DATASET
    if not path.exists() and (folder / "train").is_dir():
        classes, listed = folders.list_splits(folder)
        mean, std = IMAGENET_MEAN, IMAGENET_STD
        name = folder.resolve().name
        return Dataset(folder, FOLDER, name, classes, 3, None, None, Kind(), mean, std, "", listed)
    found = read_description(path)
    _check_kind(found, path, labels, samples)
    return _of_images(found, folder, path)


def read_description(path: Path) -> description.Dataset:
    """Return the content of the `dataset.json` at `path`.

    Raises:
        DataError: the file is missing or malformed.
    """
    try:
        # A later version of the packer may add keys, so unknown keys are ignored.
        return description.parse(json.loads(path.read_text(encoding="utf-8")), strict=False)
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist; --data is a folder that `trimaran data` made, "
            "or one with train/CLASS/*.jpg and val/CLASS/*.jpg",
            code="data-missing",
        ) from error
    except Malformed as error:
        faults = (
            f"'{'.'.join(map(str, one.where))}' {one.problem}"
            + f" (found: {one.value!r:.60})" * one.told for one in error.faults
        )
        raise DataError(f"{path}: {'; '.join(faults)}", code="data-invalid") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", code="file-unreadable") from error


def _of_images(found: description.Dataset, folder: Path, path: Path) -> Dataset:
    image = found.image
    if image is None or found.format == "tokens":
        raise DataError(f"{path} describes a text, and this app trains on images or videos; "
                        "choose other --data", code="data-unsuitable")
    if not len(image.mean) == len(image.std) == image.channels:
        raise DataError(
            f"{path}: needs a mean and a std for each of {image.channels} channels",
            code="data-invalid",
        )
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
    dataset: description.Dataset, path: Path, labels: Collection[str], samples: Collection[str]
) -> None:
    """Raise DataError if the caller or the format does not support the kind of samples or labels.

    A data set with labels must also list its classes; otherwise DataError is raised.
    """
    kind = dataset.kind
    for key, value, wanted in (("labels", kind.labels, labels), ("sample", kind.sample, samples)):
        if value not in wanted:
            raise DataError(
                f"{path}: '{key}' is {value}; here data sets are read where it is "
                + " or ".join(wanted),
                code="data-unsuitable",
            )
    if not formats.can_hold(dataset.format, kind):
        raise DataError(
            f"{path}: labels {kind.labels}, sample {kind.sample} cannot be in {dataset.format}: "
            "its layout holds other samples",
            code="format-unsuitable",
        )
    if not dataset.classes and kind.labels != "none":
        raise DataError(f"{path}: no classes, and 'labels' is {kind.labels}", code="data-invalid")
