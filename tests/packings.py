"""Pack image folders and read packed data, for the tests of packing."""

from __future__ import annotations

from pathlib import Path

from shards import formats
from shards.description import Dataset
from shards.formats.records import Read
from trimaran.data import dataset_json
from trimaran.data.packing import class_folders, packer
from trimaran.data.packing.plan import Options
from trimaran.reporting import Silent


def pack(
    source: Path, out: Path, *, workers: int = 1, skip_bad: bool = False,
    told: Silent | None = None, untrained: bool = False, **options: object,
) -> Dataset:
    wanted = Options(**{"name": "photos", "format": "webdataset", "samples": 4, **options})  # type: ignore[arg-type]
    reporter = told or Silent()
    found = class_folders.listing(source, workers, reporter, untrained=untrained)
    return packer.pack(
        found, out, wanted, workers=workers, skip_bad=skip_bad, reporter=reporter
    )


def read(out: Path, split: str) -> list[Read]:
    dataset = dataset_json.read(out)
    found = [
        one
        for shard in dataset.splits[split].shards
        for one in formats.load(dataset.format).scan(
            out / shard.file, out / shard.index if shard.index else None, dataset.kind
        )
    ]
    assert not [one for one in found if isinstance(one, str) or one.fault]
    return [one for one in found if isinstance(one, Read)]


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes()
            for path in sorted(place.rglob("*")) if path.is_file()}


def faults(out: Path) -> list[str]:
    return dataset_json.file_faults(
        out, dataset_json.read(out), records=True, workers=1, reporter=Silent()
    )
