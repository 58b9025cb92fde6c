"""Every fault of a packed data set: files, hashes, indexes, records, images; all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trimaran import packed, pool
from trimaran.contracts import FormatName
from trimaran.packing import formats, pictures
from trimaran.packing.records import Read
from trimaran.reporting import Advance, Reporter

SMALL = 1 << 26
"""Bytes up to which starting processes takes longer than they save."""


@dataclass(frozen=True)
class Task:
    """One shard to look at; `records`: its records too, not only its hash."""

    folder: Path
    format: FormatName
    shard: packed.Shard
    classes: int
    records: bool


def faults(
    folder: Path, dataset: packed.Dataset, *, records: bool, workers: int, reporter: Reporter
) -> list[str]:
    """Return a line for each fault of the shards in `folder`, naming shard and record.

    Args:
        folder: where `dataset.json` was read.
        dataset: its content.
        records: also read every record and decode every image.
        workers: processes.
        reporter: shows progress.
    """
    found = packed.missing_files(folder, dataset)
    shards = [shard for split in dataset.splits.values() for shard in split.shards]
    tasks = [
        Task(folder, dataset.format, shard, len(dataset.classes), records)
        for shard in shards
        if (folder / shard.file).is_file()
    ]
    total = sum(task.shard.bytes for task in tasks)
    if total < SMALL:
        workers = 1
    with reporter.bar(f"verifying {dataset.name}", total, unit="B") as advance:
        results = dict(pool.run(look_at, tasks, workers, advance))
    return found + [fault for task in tasks for fault in results[task.shard.file]]


def look_at(task: Task, advance: Advance) -> tuple[str, list[str]]:
    """Return the name of the shard of `task` and its faults, but for a wrong size."""
    share = 0.1 if task.records else 1.0  # about what hashing costs of it
    right, found = True, []
    if (task.folder / task.shard.file).stat().st_size == task.shard.bytes:
        digest = _hash(task, share, advance)
        right = digest == task.shard.sha256
        if not right:
            found.append(f"{task.folder / task.shard.file} is damaged: SHA-256 {digest},"
                         f" {task.shard.sha256} is listed")
    else:
        right = False  # said already, by whoever compared the sizes
    if task.records and (right or formats.load(task.format).READS_DAMAGED):
        found += _record_faults(task, 1 - share, advance)
    return task.shard.file, found


def _hash(task: Task, share: float, advance: Advance) -> str:
    digest = hashlib.sha256()
    with (task.folder / task.shard.file).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            advance(share * len(block))
    return digest.hexdigest()


def _record_faults(task: Task, share: float, advance: Advance) -> Iterator[str]:
    path = task.folder / task.shard.file
    index = task.folder / task.shard.index if task.shard.index else None
    if index is not None and not index.is_file():
        return  # said already
    count = 0
    faults = _Faults(path)
    for found in formats.load(task.format).read(path, index):
        if isinstance(found, str):
            yield from faults.end()
            yield f"{path} {found}"
            continue
        advance(share * len(found.image))
        for fault in [found.fault] if found.fault else _sample_faults(found, task.classes):
            yield from faults.add(count, found.name, fault)
        count += 1
    yield from faults.end()
    if count != task.shard.samples:
        yield f"{path} has {count:,} records, {task.shard.samples:,} are listed"


def _sample_faults(found: Read, classes: int) -> Iterator[str]:
    if not 0 <= found.label < classes:
        yield f"has no class from 0 to {classes - 1}"
    if (defect := pictures.defect(found.image)) is not None:
        yield defect


class _Faults:
    """Faults of records; the same one of neighbours is told once: a cut shard lacks thousands."""

    def __init__(self, path: Path) -> None:
        self._path, self._first, self._last, self._name, self._fault = path, -1, -1, "", ""

    def add(self, number: int, name: str, fault: str) -> Iterator[str]:
        """Take the fault of a record; yield the one before it, unless it goes on."""
        if fault != self._fault or number != self._last + 1:
            yield from self.end()
            self._first, self._name, self._fault = number, name, fault
        self._last = number

    def end(self) -> Iterator[str]:
        """Yield the last fault."""
        if self._fault:
            name = f" ({self._name})" if self._name else ""
            more = self._last - self._first
            also = f", and the {more:,} after it too" if more else ""
            yield f"{self._path}: record {self._first}{name} {self._fault}{also}"
            self._fault = ""
