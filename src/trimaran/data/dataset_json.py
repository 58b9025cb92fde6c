"""Read and write `dataset.json` of a packed data set, and verify the data set against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from shards import description, entries, formats
from shards.description import DATASET, Dataset, TextFacts
from shards.kinds import FormatName, Kind
from trimaran import strict
from trimaran.data import text_faults
from trimaran.data.contracts import AnyContract, Contract
from trimaran.data.shard_faults import Task, look_at, unreadable
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
        UsageError: the format cannot hold such samples. For example, it is only for texts, or each
            of its records has exactly one image and one class.
    """
    if formats.can_hold(name, kind):
        return
    if kind.sample == "text":
        raise UsageError(f"the format {name} holds images: it cannot hold a text",
                         code="format-unsuitable", hint="choose --format tokens")
    reason = ("the format tokens holds the documents of a text: it cannot hold images"
              if formats.FORMATS[name].text else
              f"a record of the format {name} holds one image with one class: it cannot hold"
              " sequences, or images with any number of classes")
    raise UsageError(reason, code="format-unsuitable",
                     hint="choose --format webdataset, tfrecord or hdf5")


def mismatches(contract: AnyContract, dataset: Dataset, samples: Mapping[str, int]) -> list[str]:
    """Return one line for each difference between `dataset` and `contract`.

    `samples` maps the name of a split to the number of samples that a recipe requires. This number
    takes precedence over the number in the contract.
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
        contract: the expected data set; None if any data set is allowed.
        place: the folder with `dataset.json`.
        records: also read every record and decode every image.
        reporter: shows progress.
        workers: number of processes; None for one process per core.

    Returns:
        One line for each fault, which names the file.
    """
    from trimaran import pool  # slow to import, as is Pillow

    try:
        dataset = read(place)
    except UsageError as error:
        return error.message.splitlines()
    own: list[str] = []
    if contract is not None:
        own = mismatches(contract, dataset, {})
        own += unpinned(contract, dataset, sha256(place / DATASET))
    found = [f"{place}: {fault}" for fault in own] + file_faults(
        place, dataset, records=records, workers=workers or pool.cores(), reporter=reporter
    )
    return list(dict.fromkeys(found))  # both checks count the samples and report the same fault


def unpinned(contract: AnyContract, dataset: Dataset, digest: str) -> list[str]:
    """Return a list with one fault if the SHA-256 of `dataset.json` differs from the contract.

    The list is empty if they are equal. `digest` is the SHA-256 of the file. A contract contains it
    only for its own format, so the digest of a data set in another format is not checked.
    """
    pinned = contract.packed if isinstance(contract, Contract) else None
    if dataset.format != contract.own_format or pinned is None or digest == pinned.sha256:
        return []
    return [
        f"its {DATASET} has the SHA-256 {digest}, the contract pins {pinned.sha256}: it was"
        " changed, or another version of Trimaran wrote it"
    ]


def is_made_from(contract: AnyContract, dataset: Dataset) -> bool:
    """Return True if the data set was made from exactly the files that the data contract lists.

    The names and the SHA-256 hashes of the files are compared.
    """
    contents = (
        {name: content.sha256 for name, content in contract.files.items()}
        if isinstance(contract, Contract) else {}
    )
    return dataset.origin is not None and dataset.origin.contents == contents


SMALL = 1 << 26
"""A data set with fewer bytes is checked by one process, which is then faster than several."""


def file_faults(
    folder: Path, dataset: Dataset, *, records: bool, workers: int, reporter: Reporter
) -> list[str]:
    """Return one line for each fault of the shards in `folder`; it names the shard and the record.

    Args:
        folder: the packed data set.
        dataset: its `dataset.json`.
        records: also read every record and decode every image.
        workers: number of processes, or of threads if `records` is false; threads start faster.
        reporter: shows progress.
    """
    from trimaran import pool

    found = _described_wrongly(folder, dataset)
    shards = {shard.file: shard for shard in dataset.shards}
    sizes = _sizes(folder, dataset, found)
    found += dataset.wrong_sizes(folder, sizes)
    found += _tokenizer_faults(folder, dataset.text)
    tasks = [
        Task(folder, dataset.format, shard, len(dataset.classes), dataset.kind,
             dataset.image.encoding if dataset.image else "", dataset.text, records)
        for shard in shards.values()
        if shard.file in sizes
    ]
    total = sum(task.shard.bytes for task in tasks)
    with reporter.bar(f"verifying {dataset.name}", total, unit="B") as advance:
        if records:
            results = dict(pool.run(look_at, tasks, workers if total >= SMALL else 1, advance))
        else:
            with ThreadPoolExecutor(workers) as threads:
                results = dict(threads.map(partial(look_at, advance=advance), tasks))
    found += [fault for task in tasks for fault in results[task.shard.file]]
    return list(dict.fromkeys(found))


def _sizes(folder: Path, dataset: Dataset, found: list[str]) -> dict[str, int]:
    """Return the size in bytes of each file that `dataset` lists and that exists.

    If a file cannot be accessed, a message is added to the list `found`.
    """
    listed = {dataset.text.tokenizer.file: 0} if dataset.text else {}
    for shard in dataset.shards:
        listed |= {shard.file: shard.bytes} | ({shard.index: 0} if shard.index else {})
    sizes = {}
    for name, size in listed.items():
        try:
            if (folder / name).is_file():
                sizes[name] = (folder / name).stat().st_size
        except OSError as error:
            found.append(unreadable(folder / name, error))
            sizes[name] = size  # otherwise it would also be reported as missing
    return sizes


def _tokenizer_faults(folder: Path, text: TextFacts | None) -> list[str]:
    try:
        return text_faults.of_tokenizer(folder, text) if text else []
    except OSError as error:
        return [unreadable(folder, error)]


def _described_wrongly(folder: Path, dataset: Dataset) -> list[str]:
    """Return one line for each contradiction within `dataset.json`, such as a wrong sum."""
    found = []
    shards = dataset.shards
    if not dataset.splits:
        found.append("no split is listed")
    for name, split in dataset.splits.items():
        if split.samples != sum(shard.samples for shard in split.shards):
            found.append(f"split {name}: its shards do not add up to {split.samples:,} samples")
    files = Counter(name for shard in shards for name in (shard.file, shard.index) if name)
    found += [f"{name} is listed {count} times" for name, count in files.items() if count > 1]
    if not formats.can_hold(dataset.format, dataset.kind):
        found.append(f"the format {dataset.format} cannot hold samples '{dataset.kind.word}'")
    if formats.FORMATS[dataset.format].indexed:
        found += [f"{one.file} is listed without its index" for one in shards if one.index is None]
    if (image := dataset.image) is not None:
        for name, values in (("mean", image.mean), ("std", image.std)):
            if len(values) != image.channels:
                found.append(f"image.{name} has {len(values)} numbers for {image.channels}"
                             " channels")
    found += text_faults.of_counts(dataset)
    return [f"{folder}: {fault}" for fault in found]
