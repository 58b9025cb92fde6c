"""The formats by name, and the one way in which a shard of any of them is written."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from trimaran.data import dataset_json
from trimaran.data.formats.records import Format, Record
from trimaran.data.kinds import FormatName, Kind
from trimaran.errors import UsageError
from trimaran.files import sha256


def load(name: FormatName) -> Format:
    """Return the module of a format; only now are its libraries imported."""
    return cast(Format, importlib.import_module(f"trimaran.data.formats.{name}"))


def check(name: FormatName, kind: Kind) -> None:
    """Refuse samples that the format has no place for.

    Raises:
        UsageError: its published layout holds one image of one class.
    """
    if load(name).PLAIN_ONLY and not kind.plain:
        raise UsageError(
            f"{name} holds one image of one class in a record: no sequences, and not any number"
            " of classes",
            hint="choose --format webdataset, tfrecord or hdf5",
        )


def write_shard(
    name: FormatName, folder: Path, stem: str, kind: Kind, records: Iterable[Record]
) -> dataset_json.Shard:
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
    return dataset_json.Shard(
        file=writer.file, index=writer.index,
        index_sha256=sha256(folder / writer.index) if writer.index else None,
        samples=count, bytes=path.stat().st_size, sha256=sha256(path),
    )
