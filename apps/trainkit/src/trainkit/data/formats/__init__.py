"""The formats of packed data sets: where in a shard a record is. One module per format.

Each module has a class with the interface `Shard`; `SHARDS` names them as `dataset.json`
does. A shard is mapped into memory and a record is a view of its bytes; the positions
are found once when it is opened, from an index or a table, never by reading the shard.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from trainkit.data.formats.hdf5 import Hdf5Shard
from trainkit.data.formats.images import ImageFolder
from trainkit.data.formats.lmdb import LmdbShard
from trainkit.data.formats.mapped import Bytes
from trainkit.data.formats.recordio import RecordIoShard
from trainkit.data.formats.tfrecord import TfRecordShard
from trainkit.data.formats.webdataset import WebDatasetShard


class Shard(Protocol):
    """The samples of one shard, numbered from 0.

    Opening one with (folder, its entry of `dataset.json`, the ending of image files)
    raises DataError where the shard, its index or its table is missing or wrong.
    """

    def __init__(self, folder: Path, entry: dict[str, Any], encoding: str) -> None: ...

    def __len__(self) -> int: ...

    def encoded(self, number: int) -> Bytes:
        """Return the bytes of an image file; DataError if the record is malformed."""
        ...

    def label(self, number: int) -> int:
        """Return the class of a sample as stored; DataError if it is no number."""
        ...

    def describe(self, number: int) -> str:
        """Return the shard and the record, for an error message; never raises."""
        ...


SHARDS: dict[str, type[Shard]] = {
    "webdataset": WebDatasetShard,
    "tfrecord": TfRecordShard,
    "recordio": RecordIoShard,
    "lmdb": LmdbShard,
    "hdf5": Hdf5Shard,
    "folder": ImageFolder,
}
