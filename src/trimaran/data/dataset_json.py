"""`dataset.json` of a packed data set, read with the tool's errors and compared with contracts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shards import description, entries, formats
from shards.description import DATASET, Dataset
from shards.kinds import FormatName, Kind
from trimaran import strict
from trimaran.data.contracts import AnyContract, Contract
from trimaran.errors import UsageError
from trimaran.files import write_atomic
from trimaran.terminal_safety import excerpt


def read(folder: Path) -> Dataset:
    """Read `dataset.json` of `folder`.

    Raises:
        UsageError: it is missing or malformed, or lists indexes without their hashes.
    """
    path = folder / DATASET
    if not path.is_file():
        raise UsageError(
            f"{folder} holds no packed data set (no {DATASET})",
            hint="give the folder that `trimaran data get` or `data pack` made",
        )
    try:
        dataset = description.parse(strict.read_json(path), strict=True)
    except entries.Malformed as error:
        strict.refuse_json(path, [
            (fault.where, fault.problem + f" (found: {excerpt(fault.value)})" * fault.told)
            for fault in error.faults
        ])
    # A reader finds images and classes by the index: another one gives other labels.
    if any(one.index is not None and one.index_sha256 is None for one in dataset.shards):
        raise UsageError(
            f"{path} lists no hashes of the indexes: an earlier version of Trimaran packed it",
            hint=f"pack it again: `trimaran data get {dataset.name} --format {dataset.format}`, or"
            " `trimaran data pack` into a new folder",
        )
    return dataset


def write(folder: Path, dataset: Dataset) -> None:
    """Write `dataset.json`, after everything that it lists."""
    write_atomic(folder / DATASET, description.text(dataset))


def check_format(name: FormatName, kind: Kind) -> None:
    """Refuse samples that the format has no place for.

    Raises:
        UsageError: its published layout holds one image of one class.
    """
    if not formats.can_hold(name, kind):
        raise UsageError(
            f"{name} holds one image of one class in a record: no sequences, and not any number"
            " of classes",
            hint="choose --format webdataset, tfrecord or hdf5",
        )


def mismatches(contract: AnyContract, dataset: Dataset, samples: Mapping[str, int]) -> list[str]:
    """Return how `dataset` differs from `contract` and from the `samples` needed per split."""
    if dataset.name != contract.name:
        return [f"it holds '{dataset.name}', not '{contract.name}'"]
    faults = []
    if dataset.kind != contract.kind:
        faults.append(f"its samples are '{dataset.kind.word}', not '{contract.kind.word}'")
    if dataset.classes != contract.classes:
        faults.append("its classes are not those of the contract")
    wanted = {name: split.samples for name, split in contract.splits.items()} | dict(samples)
    for name, count in wanted.items():
        split = dataset.splits.get(name)
        if split is None:
            faults.append(f"split {name} is missing")
            continue
        if count is not None and split.samples != count:
            faults.append(f"split {name} has {split.samples:,} samples, {count:,} are needed")
        if split.samples != sum(shard.samples for shard in split.shards):
            faults.append(f"split {name}: its shards do not add up to {split.samples:,} samples")
    return faults


def unpinned(contract: AnyContract, digest: str) -> list[str]:
    """Return a fault unless `digest` is the SHA-256 of `dataset.json` that `contract` pins."""
    pinned = contract.packed if isinstance(contract, Contract) else None
    if pinned is None or digest == pinned.sha256:
        return []
    return [
        f"its {DATASET} has the SHA-256 {digest}, the contract pins {pinned.sha256}: it was"
        " changed, or packed by another version of Trimaran"
    ]
