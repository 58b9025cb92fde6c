"""The formats of packed data sets: where in a shard a record is. One module per format.

Each module has a class with the interface `Shard`; `FORMATS` names them as `dataset.json`
does. A shard is mapped into memory and a record is a view of its bytes; the positions
are found once when it is opened, from an index or a table, never by reading the shard.

What a record holds, by `labels` and `sample` of `dataset.json` (an image of one class where
they are not there); written by `trimaran data pack`:

| format | one class | any number (`multi`) | `none` | `sequence` |
|---|---|---|---|---|
| webdataset | `KEY.cls`: digits | `KEY.cls`: numbers, increasing, a blank between; may be empty | no `KEY.cls` | `KEY.000000.jpg`, `KEY.000001.jpg`, … before `KEY.cls`; all in the index line |
| tfrecord | int64 `image/class/label`: one value | 0 or more values, increasing | no such feature | `image/encoded` has a value per frame |
| hdf5 | `labels`: one per sample | `labels` of all samples; `label_offsets`: where each one's begin | no `labels` | `offsets` per frame; `sample_offsets`: the first frame of each sample |
| recordio, lmdb | as published | refused | refused | refused |
"""  # noqa: E501 - a table

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Protocol, cast

from trainkit.data.formats.mapped import Bytes
from trainkit.data.kinds import Kind
from trainkit.exits import DataError


class Shard(Protocol):
    """The samples of one shard, numbered from 0.

    Opening one with (folder, its entry of `dataset.json`, what its samples are) raises
    DataError where the shard, its index or its table is missing or wrong.
    """

    def __init__(self, folder: Path, entry: dict[str, Any], kind: Kind) -> None: ...

    def __len__(self) -> int: ...

    def frames(self, number: int) -> list[Bytes]:
        """Return the bytes of the image files of a sample; DataError if it is malformed."""
        ...

    def labels(self, number: int) -> list[int]:
        """Return the classes of a sample as stored; DataError if they are no numbers."""
        ...

    def describe(self, number: int) -> str:
        """Return the shard and the record, for an error message; never raises."""
        ...


FOLDER = "folder"
"""A folder of images that is not packed: of no `dataset.json`."""

FORMATS = {
    "webdataset": "WebDatasetShard",
    "tfrecord": "TfRecordShard",
    "recordio": "RecordIoShard",
    "lmdb": "LmdbShard",
    "hdf5": "Hdf5Shard",
    FOLDER: "ImageFolder",
}
"""The class of each; its module has the name of the format."""

PLAIN_ONLY = ("recordio", "lmdb", FOLDER)
"""Formats whose published layout holds one image of one class in a record, and no more."""


def load(name: str) -> type[Shard]:
    """Return the class of the format `name`; only now are its libraries imported.

    Raises:
        DataError: one of them is not installed.
    """
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise DataError(
            f"data sets in the format {name} need the Python package {error.name}, "
            "which is not installed here; `trimaran data pack` writes others"
        ) from error
    return cast("type[Shard]", getattr(module, FORMATS[name]))
