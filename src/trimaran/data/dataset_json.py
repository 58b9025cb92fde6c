"""Read and write `dataset.json` of a packed data set, and verify the data set by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shards import description, entries, formats
from shards.description import DATASET, Dataset
from shards.kinds import FormatName, Kind
from trimaran import strict
from trimaran.data.contracts import AnyContract, Contract
from trimaran.errors import UsageError
from trimaran.files import sha256, write_atomic
from trimaran.reporting import Reporter
from trimaran.terminal_safety import excerpt


def read(folder: Path) -> Dataset:
    """Read `dataset.json` of `folder`.

    Raises:
        UsageError: the file is missing or invalid, or lists index files without their hashes.
    """
    path = folder / DATASET
    if not path.is_file():
        raise UsageError(
            f"{folder} contains no packed data set (no {DATASET})", code="data-missing",
            hint="name a folder that `trimaran data get` or `trimaran data pack` wrote",
        )
    try:
        dataset = description.parse(strict.read_json(path), strict=True)
    except entries.Malformed as error:
        strict.refuse_json(path, [
            (fault.where, fault.problem + f" (found: {excerpt(fault.value)})" * fault.told)
            for fault in error.faults
        ])
    # A reader finds images and classes by the index, so a wrong index gives wrong labels.
    if any(one.index is not None and one.index_sha256 is None for one in dataset.shards):
        raise UsageError(
            f"{path} lists no hashes of the index files: an earlier version of Trimaran wrote it",
            code="data-outdated",
            hint=f"pack it again: `trimaran data get {dataset.name} --format {dataset.format}`, or"
            " `trimaran data pack` into a new folder",
        )
    return dataset


def write(folder: Path, dataset: Dataset) -> None:
    """Write `dataset.json`; the files that it lists must exist already."""
    write_atomic(folder / DATASET, description.text(dataset))


def check_format(name: FormatName, kind: Kind) -> None:
    """Check that the packed format can hold samples of this kind.

    Raises:
        UsageError: the format cannot hold them, because its records have one image of one class.
    """
    if not formats.can_hold(name, kind):
        raise UsageError(
            f"a record of the format {name} holds one image with one class: it cannot hold"
            " sequences, or images with any number of classes",
            code="format-unsuitable", hint="choose --format webdataset, tfrecord or hdf5",
        )


def mismatches(contract: AnyContract, dataset: Dataset, samples: Mapping[str, int]) -> list[str]:
    """Return one line for each difference between `dataset` and `contract`.

    `samples` are the numbers of samples of splits in a recipe. They replace those in the contract.
    """
    if dataset.name != contract.name:
        return [f"it is the data set '{dataset.name}', not '{contract.name}'"]
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


def verify_folder(
    contract: AnyContract | None, place: Path, *, records: bool, reporter: Reporter,
    workers: int | None = None,
) -> list[str]:
    """Hash the shards of the packed data set in the folder `place`, and return its faults.

    Args:
        contract: the expected data set (None: any).
        place: the folder with `dataset.json`.
        records: also read every record and decode every image.
        reporter: shows progress.
        workers: number of processes (None: one for each core).

    Returns:
        One line for each fault, which names the file.
    """
    from trimaran import pool  # slow to import, as is Pillow
    from trimaran.data.packing import verification

    try:
        dataset = read(place)
    except UsageError as error:
        return error.message.splitlines()
    own: list[str] = []
    if contract is not None:
        own = mismatches(contract, dataset, {})
        own += unpinned(contract, dataset, sha256(place / DATASET))
    found = [f"{place}: {fault}" for fault in own] + verification.faults(
        place, dataset, records=records, workers=workers or pool.cores(), reporter=reporter
    )
    return list(dict.fromkeys(found))  # both checks count the samples and report the same fault


def unpinned(contract: AnyContract, dataset: Dataset, digest: str) -> list[str]:
    """Return a fault if `digest`, the SHA-256 of `dataset.json`, is not the one in the contract.

    A contract has a SHA-256 only for its own format, so other formats have no such fault.
    """
    pinned = contract.packed if isinstance(contract, Contract) else None
    if dataset.format != contract.own_format or pinned is None or digest == pinned.sha256:
        return []
    return [
        f"its {DATASET} has the SHA-256 {digest}, the contract pins {pinned.sha256}: it was"
        " changed, or another version of Trimaran wrote it"
    ]


def is_made_from(contract: AnyContract, dataset: Dataset) -> bool:
    """Return True if the data set was made from exactly the files of the contract."""
    contents = (
        {name: content.sha256 for name, content in contract.files.items()}
        if isinstance(contract, Contract) else {}
    )
    return dataset.origin is not None and dataset.origin.contents == contents
