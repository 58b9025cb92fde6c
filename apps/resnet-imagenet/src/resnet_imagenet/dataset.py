"""A packed data set: `dataset.json` and WebDataset shards with DALI indexes, checked when opened.

    <folder>/dataset.json, <split>-NNNNN.tar, <split>-NNNNN.idx

A shard is a tar file with `00000042.png` and `00000042.cls` per sample; its index
(DALI's wds2idx format, v1.2) has the byte position of both. The shards are mapped
into memory, so that a record is a view of its bytes: no read, no copy, any order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainkit.exits import DataError

TAR_BLOCK = 512
Bytes = NDArray[np.uint8]
MODES = {1: "grey", 3: "RGB"}


@dataclass(frozen=True)
class Dataset:
    """What `dataset.json` says; sizes in pixels, `mean` and `std` per channel in 0..1.

    `height` and `width` are None for images of varying sizes.
    """

    folder: Path
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
        return Records(self, self.splits[split])

    def fingerprint(self) -> str:
        """Return the name with a hash of all shards' checksums: equal only for equal data."""
        sums = [entry["sha256"] for shards in self.splits.values() for entry in shards]
        return f"{self.name} {hashlib.sha256(' '.join(sums).encode()).hexdigest()[:12]}"

    def evaluation_split(self) -> str:
        """Return the name of the split to evaluate on: "val" where there is one, else "test"."""
        return "val" if "val" in self.splits else "test"


def open_dataset(folder: Path) -> Dataset:
    """Return the data set in `folder`.

    Raises:
        DataError: the folder or its `dataset.json` is missing or malformed.
    """
    path = folder / "dataset.json"
    try:
        document = json.loads(path.read_text())
        if document["schema"] != 1 or document["format"] != "webdataset":
            raise DataError(f"{path}: needs schema 1 and format webdataset")
        image = document["image"]
        dataset = Dataset(
            folder=folder,
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
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist; --data is the folder that `trimaran data get` made"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: missing or malformed entry ({error})") from error
    if dataset.channels not in MODES or len(dataset.mean) != dataset.channels:
        raise DataError(f"{path}: needs 1 or 3 channels, and a mean and std for each")
    return dataset


class Records:
    """The samples of one split, numbered through its shards in order."""

    def __init__(self, dataset: Dataset, shards: Sequence[dict[str, Any]]) -> None:
        self.dataset = dataset
        self._paths: list[Path] = []
        self._maps: list[Bytes] = []
        tables = []
        for number, entry in enumerate(shards):
            shard = _map_shard(dataset.folder, entry)
            self._paths.append(dataset.folder / entry["file"])
            self._maps.append(shard)
            table = _read_index(dataset, entry, shard)
            tables.append(np.insert(table, 0, number, axis=1))
        if not tables or not sum(map(len, tables)):
            raise DataError(f"{dataset.folder / 'dataset.json'}: a split without samples")
        # One row per sample: shard, image position, image size, label position, label size.
        self._table = np.concatenate(tables)

    def __len__(self) -> int:
        return len(self._table)

    def encoded(self, number: int) -> Bytes:
        """Return the bytes of the image file of sample `number`, a view into the shard."""
        shard, start, size, _, _ = self._table[number].tolist()
        view: Bytes = self._maps[shard][start : start + size]
        return view

    def label(self, number: int) -> int:
        """Return the class of sample `number`."""
        shard, _, _, start, size = self._table[number].tolist()
        text = self._maps[shard][start : start + size].tobytes()
        if text.strip().isdigit() and int(text) < len(self.dataset.classes):
            return int(text)
        raise DataError(
            f"{self.describe(number)}: its class is {text[:20]!r}, "
            f"not a number from 0 to {len(self.dataset.classes) - 1}"
        )

    def describe(self, number: int) -> str:
        """Return shard, name and byte position of sample `number`, for an error message."""
        shard, start, _, _, _ = self._table[number].tolist()
        name = _tar_name(self._maps[shard], start)
        return f"{self._paths[shard]}: record {name} (at byte {start})"


def _map_shard(folder: Path, entry: dict[str, Any]) -> Bytes:
    path = folder / entry["file"]
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            raise DataError(
                f"shard {path} has {size} bytes, dataset.json says {entry['bytes']}: "
                "it is truncated or of another version; `trimaran data verify` tells more"
            )
        shard: Bytes = np.asarray(np.memmap(path, np.uint8, mode="r"))
    except FileNotFoundError as error:
        raise DataError(f"shard {path} does not exist, dataset.json lists it") from error
    except OSError as error:
        raise DataError(f"shard {path} cannot be read: {error}") from error
    return shard


def _read_index(dataset: Dataset, entry: dict[str, Any], shard: Bytes) -> NDArray[np.int64]:
    """Return image position, image size, label position, label size of each sample."""
    path = dataset.folder / entry["index"]
    try:
        header, *lines = path.read_text().splitlines()
        version, count = header.split()
        table = np.array([_positions(line, dataset.encoding) for line in lines], np.int64)
    except FileNotFoundError as error:
        raise DataError(f"index {path} does not exist, dataset.json lists it") from error
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"index {path} is malformed: {error}") from error
    if version != "v1.2" or not int(count) == len(lines) == entry["samples"]:
        raise DataError(
            f"index {path}: expected v1.2 with {entry['samples']} samples as in dataset.json, "
            f"found {version} with {count} announced and {len(lines)} listed"
        )
    if len(table) and (table[:, 0] + table[:, 1]).max() > len(shard):
        raise DataError(f"index {path} points beyond the end of {entry['file']}")
    for row in (table[0], table[-1]) if len(table) else ():  # an index of another tar file
        if not _tar_name(shard, int(row[0])).endswith("." + dataset.encoding):
            raise DataError(f"index {path} does not belong to {entry['file']}")
    return table


def _positions(line: str, encoding: str) -> tuple[int, int, int, int]:
    """Return the positions in an index line: `png 512 378 0.png cls 1536 1 0.cls`."""
    words = line.split()
    parts = {words[i]: (int(words[i + 1]), int(words[i + 2])) for i in range(0, len(words), 4)}
    return (*parts[encoding], *parts["cls"])


def _tar_name(shard: Bytes, start: int) -> str:
    """Return the name in the tar header of the member whose data begin at `start`."""
    header = shard[max(0, start - TAR_BLOCK) : start].tobytes()
    return header[:100].split(b"\0")[0].decode(errors="replace")
