"""Check one shard of a packed data set: its checksum, and all of its records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shards import formats
from shards.description import Shard, TextFacts
from shards.formats.records import Read
from shards.kinds import FormatName, ImageFormat, Kind
from trimaran.data import text_faults
from trimaran.files import sha256
from trimaran.reporting import Advance


@dataclass(frozen=True)
class Task:
    """One shard to check: its hash and, if `records` is true, all of its records.

    Attributes:
        folder: folder of the data set.
        format: format of the shard.
        shard: the shard.
        classes: number of classes.
        kind: kind of the samples.
        encoding: file name extension of the images; "" for a text.
        text: properties of a text; None for images.
        records: whether all records are read.
    """

    folder: Path
    format: FormatName
    shard: Shard
    classes: int
    kind: Kind
    encoding: str
    text: TextFacts | None
    records: bool


def unreadable(path: Path, error: OSError) -> str:
    """Return the message that the file at `path` cannot be read."""
    return f"{error.filename or path} cannot be read: {error.strerror or error}"


def look_at(task: Task, advance: Advance) -> tuple[str, list[str]]:
    """Return the name of the shard file of `task`, and one line for each fault of the shard.

    A wrong size is not reported here, because it was reported when the sizes were compared.
    """
    found: list[str] = []
    try:
        for fault in _shard_faults(task, advance):
            found.append(fault)  # one by one, to keep the faults before an error
    except OSError as error:
        found.append(unreadable(task.folder / task.shard.file, error))
    return task.shard.file, found


def _shard_faults(task: Task, advance: Advance) -> Iterator[str]:
    share = 0.1 if task.records else 1.0  # share of the time that hashing takes, roughly
    right = False
    if (task.folder / task.shard.file).stat().st_size == task.shard.bytes:
        digest = sha256(task.folder / task.shard.file, lambda read: advance(share * read))
        right = digest == task.shard.sha256
        if not right:
            yield (f"{task.folder / task.shard.file} is damaged: SHA-256 {digest},"
                   f" {task.shard.sha256} is listed")
    if (index := task.shard.index) is not None and (task.folder / index).is_file():
        digest = sha256(task.folder / index)
        if digest != task.shard.index_sha256:
            yield (f"{task.folder / index} is damaged: SHA-256 {digest},"
                   f" {task.shard.index_sha256} is listed")
    # A shard with a wrong size was reported when the sizes were compared.
    if task.records and (right or formats.FORMATS[task.format].reads_damaged):
        if task.text is not None:
            yield from text_faults.of_shard(task.folder / task.shard.file, task.shard, task.text)
            advance((1 - share) * task.shard.bytes)
        elif task.format != "tokens":  # images in the format `tokens` are a fault of dataset.json
            yield from _record_faults(task, task.format, 1 - share, advance)


def _record_faults(
    task: Task, form: ImageFormat, share: float, advance: Advance
) -> Iterator[str]:
    from trimaran.data.packing import pictures

    path = task.folder / task.shard.file
    index = task.folder / task.shard.index if task.shard.index else None
    if formats.FORMATS[form].indexed if index is None else not index.is_file():
        return  # the missing index was reported already
    count, encodings = 0, set[str]()
    faults = _Faults(path)
    try:
        for found in formats.load(form).scan(path, index, task.kind):
            if isinstance(found, str):
                yield from faults.end()
                yield f"{path} {found}"
                continue
            advance(share * sum(map(len, found.frames)))
            encodings.update(map(pictures.encoding, found.frames))
            for fault in [found.fault] if found.fault else _sample_faults(found, task):
                yield from faults.add(count, found.name, fault)
            count += 1
    except OSError as error:
        yield from faults.end()
        yield unreadable(path, error)
        return
    yield from faults.end()
    if count != task.shard.samples:
        yield f"{path} has {count:,} records, {task.shard.samples:,} are listed"
    # A shard may contain a PNG among JPEG files: ImageNet has a PNG with the name of a JPEG.
    if encodings - {""} and task.encoding not in encodings:
        yield f"{path} has no images in the format of image.encoding: {task.encoding}"


def _sample_faults(found: Read, task: Task) -> Iterator[str]:
    from trimaran.data.packing import pictures, sequences

    labels = found.labels
    if task.kind.labels == "class" and len(labels) != 1:
        yield f"has {len(labels)} classes, not one class"
    elif not all(0 <= label < task.classes for label in labels):
        yield f"has no class from 0 to {task.classes - 1}"
    elif list(labels) != sorted(set(labels)):
        yield f"has unsorted or repeated classes: {', '.join(map(str, labels))}"
    if not found.frames or (task.kind.sample == "image" and len(found.frames) > 1):
        yield f"has {len(found.frames)} images, not one image"
    try:
        sequences.each(found.frames, pictures.verified)
    except pictures.BadImage as error:
        yield str(error)


class _Faults:
    """Merges equal faults of adjacent records into one message.

    Otherwise, a truncated shard could cause thousands of messages.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._first, self._last, self._name, self._fault = path, -1, -1, "", ""

    def add(self, number: int, name: str, fault: str) -> Iterator[str]:
        """Add the fault of the record `number`.

        If it cannot be merged with the previous fault, yield the message about the previous fault.
        """
        if fault != self._fault or number != self._last + 1:
            yield from self.end()
            self._first, self._name, self._fault = number, name, fault
        self._last = number

    def end(self) -> Iterator[str]:
        """Yield the message about the faults that `add` merged and did not report yet, if any."""
        if self._fault:
            name = f" ({self._name})" if self._name else ""
            more = self._last - self._first
            also = f", and the {more:,} after it too" if more else ""
            yield f"{self._path}: record {self._first}{name} {self._fault}{also}"
            self._fault = ""
