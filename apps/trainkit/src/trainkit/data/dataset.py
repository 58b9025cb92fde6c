"""A data set: what `dataset.json` says of it; its splits are opened as `records`.

    <folder>/dataset.json, <split>-NNNNN.<ending>, for some formats <split>-NNNNN.idx

A folder of images without `dataset.json` is read as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from trainkit.data.formats import FOLDER, FORMATS, PLAIN_ONLY
from trainkit.data.formats.folder import list_splits
from trainkit.data.kinds import Kind, Labels, SampleKind
from trainkit.data.records import Records
from trainkit.exits import DataError

MODES = {1: "grey", 3: "RGB"}
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Dataset:
    """What `dataset.json` says; sizes in pixels, `mean` and `std` per channel in 0..1.

    `height` and `width` are None for images of varying sizes. `format` is a key of
    `formats.FORMATS`. `classes` may be empty where `kind.labels` is "none".
    """

    folder: Path
    format: str
    name: str
    classes: tuple[str, ...]
    channels: int
    height: int | None
    width: int | None
    kind: Kind
    mean: tuple[float, ...]
    std: tuple[float, ...]
    splits: dict[str, list[dict[str, Any]]]

    def records(self, split: str) -> Records:
        """Return the samples of `split`, all shards checked against `dataset.json`."""
        if split not in self.splits:
            known = ", ".join(sorted(self.splits))
            raise DataError(f"{self.folder / 'dataset.json'}: no split '{split}' (it has {known})")
        try:
            records = Records(
                self.folder, self.format, self.kind, len(self.classes), self.splits[split]
            )
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{self.folder / 'dataset.json'}: missing or malformed entry ({error}) "
                f"in a shard of '{split}'"
            ) from error
        if not len(records):
            raise DataError(f"{self.folder / 'dataset.json'}: a split without samples")
        return records

    def fingerprint(self) -> str:
        """Return the name with a hash of all shards' checksums: equal only for equal data.

        (Of a plain image folder: for equal names of files.)
        """
        sums = [entry["sha256"] for shards in self.splits.values() for entry in shards]
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
    path = folder / "dataset.json"
    if not path.exists() and (folder / "train").is_dir():
        classes, listed = list_splits(folder)
        mean, std = IMAGENET_MEAN, IMAGENET_STD
        name = folder.resolve().name
        return Dataset(folder, FOLDER, name, classes, 3, None, None, Kind(), mean, std, listed)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != 1 or document["format"] not in FORMATS.keys() - {FOLDER}:
            known = ", ".join(sorted(FORMATS.keys() - {FOLDER}))
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
    _check_kind(dataset, path, labels, samples)
    return dataset


def _check_kind(
    dataset: Dataset, path: Path, labels: Collection[str], samples: Collection[str]
) -> None:
    """Refuse kinds of samples that nobody knows, the format cannot hold, or the caller not use."""
    kind = dataset.kind
    entries = (
        ("labels", kind.labels, get_args(Labels), labels),
        ("sample", kind.sample, get_args(SampleKind), samples),
    )
    for key, value, known, wanted in entries:
        if value not in known:
            raise DataError(f"{path}: '{key}' is {value!r}, not one of {', '.join(known)}")
        if value not in wanted:
            raise DataError(
                f"{path}: '{key}' is {value}; here data sets are read where it is "
                + " or ".join(wanted)
            )
    if dataset.format in PLAIN_ONLY and not kind.plain:
        raise DataError(
            f"{path}: labels {kind.labels}, sample {kind.sample} cannot be in {dataset.format}: "
            "its published layout holds one class and one image"
        )
    if not dataset.classes and kind.labels != "none":
        raise DataError(f"{path}: no classes, and 'labels' is {kind.labels}")


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
        kind=Kind(
            document.get("labels", "class"), document.get("sample", "image"), image["encoding"]
        ),
        mean=tuple(image["mean"]),
        std=tuple(image["std"]),
        splits={name: split["shards"] for name, split in document["splits"].items()},
    )
