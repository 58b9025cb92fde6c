"""The formats of packed data sets, one module each, by the names that `dataset.json` has.

A module writes shards (`Writer`), reads their records in any order as a training does (`Reader`),
and reads all of a shard in order with every check (`scan`).

What a record holds, by `labels` and `sample` of `dataset.json` (an image of one class where
they are not there):

| format | one class | any number (`multi`) | `none` | `sequence` |
|---|---|---|---|---|
| webdataset | `KEY.cls`: digits | `KEY.cls`: numbers, increasing, a blank between; may be empty | no `KEY.cls` | `KEY.000000.jpg`, `KEY.000001.jpg`, … before `KEY.cls`; all in the index line |
| tfrecord | int64 `image/class/label`: one value | 0 or more values, increasing | no such feature | `image/encoded` has a value per frame |
| hdf5 | `labels`: one per sample | `labels` of all samples; `label_offsets`: where each one's begin | no `labels` | `offsets` per frame; `sample_offsets`: the first frame of each sample |
| recordio, lmdb | as published | refused | refused | refused |
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
from shards.kinds import FormatName, Kind


@dataclass(frozen=True)
class Traits:
    """What is known of a format without its libraries.

    Attributes:
        indexed: whether a shard needs an index.
        plain_only: whether its published layout holds one image of one class in a record.
        reads_damaged: whether a file with a wrong checksum may be given to its library.
    """

    indexed: bool = False
    plain_only: bool = False
    reads_damaged: bool = True


FORMATS: dict[FormatName, Traits] = {
    "webdataset": Traits(indexed=True),
    "tfrecord": Traits(indexed=True),
    "recordio": Traits(indexed=True, plain_only=True),
    # LMDB follows the page numbers of the file, wherever they lead.
    "lmdb": Traits(plain_only=True, reads_damaged=False),
    "hdf5": Traits(),
}


def load(name: FormatName) -> Format:
    """Return the module of a format; only now are its libraries imported.

    Raises:
        ModuleNotFoundError: one of them is not installed.
    """
    return cast(Format, importlib.import_module(f"{__name__}.{name}"))


def can_hold(name: FormatName, kind: Kind) -> bool:
    """Return whether the format has a place for such samples."""
    return kind.plain or not FORMATS[name].plain_only


def write_shard(
    name: FormatName, folder: Path, stem: str, kind: Kind, records: Iterable[Record]
) -> Shard:
    """Write `records` as the shard `stem` into `folder`; return its entry of `dataset.json`.

    Raises:
        OSError: it cannot be written; `folder` then holds an incomplete shard.
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
