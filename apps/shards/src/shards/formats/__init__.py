"""The formats of packed data sets: one module for each format name of `dataset.json`.

The module of a format writes shards (`Writer`), reads their records in any order for a training
(`Reader`), and reads a whole shard in order with all checks (`scan`).

The content of a record depends on `labels` and `sample` of `dataset.json` (default: an image with
one class):

| format | one class | any number (`multi`) | `none` | `sequence` |
|---|---|---|---|---|
| webdataset | `KEY.cls`: digits | `KEY.cls`: increasing numbers, separated by a blank; may be empty | no `KEY.cls` | `KEY.000000.jpg`, `KEY.000001.jpg`, … before `KEY.cls`; the index line lists all files |
| tfrecord | int64 `image/class/label`: one value | 0 or more increasing values | no label feature | `image/encoded` has one value per frame |
| hdf5 | `labels`: one per sample | `labels` of all samples; `label_offsets`: start of the labels of each sample | no `labels` | `offsets` per frame; `sample_offsets`: the first frame of each sample |
| recordio, lmdb | layout as published | refused | refused | refused |

A text has no records: the module `tokens` stores its documents as arrays of tokens.
"""  # noqa: E501 - a table

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from shards.description import Shard
from shards.files import sha256
from shards.formats.records import Format, Record
from shards.kinds import FormatName, ImageFormat, Kind


@dataclass(frozen=True)
class Traits:
    """Properties of a format that are available without importing its libraries.

    Attributes:
        indexed: whether a shard needs an index.
        plain_only: whether a sample in this format can have only one image with one class.
        reads_damaged: whether the library of the format can safely open a damaged file.
        text: whether the format stores documents of a text, and nothing else.
    """

    indexed: bool = False
    plain_only: bool = False
    reads_damaged: bool = True
    text: bool = False


FORMATS: dict[FormatName, Traits] = {
    "webdataset": Traits(indexed=True),
    "tfrecord": Traits(indexed=True),
    "recordio": Traits(indexed=True, plain_only=True),
    # LMDB does not check the page numbers in a file, so a damaged file may crash the process.
    "lmdb": Traits(plain_only=True, reads_damaged=False),
    "hdf5": Traits(),
    "tokens": Traits(text=True),
}


def load(name: ImageFormat) -> Format:
    """Import and return the module of an image format, which imports the libraries of the format.

    Raises:
        ModuleNotFoundError: a library of the format is not installed.
    """
    return cast(Format, importlib.import_module(f"{__name__}.{name}"))


def can_hold(name: FormatName, kind: Kind) -> bool:
    """Return whether the format can store samples of `kind`."""
    traits = FORMATS[name]
    if traits.text or kind.sample == "text":
        return traits.text and kind.sample == "text"
    return kind.plain or not traits.plain_only


def write_shard(
    name: ImageFormat, folder: Path, stem: str, kind: Kind, records: Iterable[Record]
) -> Shard:
    """Write `records` as a shard into `folder`, and return its entry of `dataset.json`.

    The names of shard and index begin with `stem`.

    Raises:
        OSError: the shard cannot be written; `folder` then contains an incomplete shard.
    """
    writer = load(name).Writer(folder, stem, kind)
    count = 0
    try:
        for record in records:
            writer.add(record)
            count += 1
        writer.finish()
    finally:
        writer.close()
    path = folder / writer.file
    return Shard(
        file=writer.file, index=writer.index,
        index_sha256=sha256(folder / writer.index) if writer.index else None,
        samples=count, bytes=path.stat().st_size, sha256=sha256(path),
    )
