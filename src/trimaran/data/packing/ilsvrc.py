"""Read the official tar files of ImageNet-2012 in place, without unpacking them.

`ILSVRC2012_img_train.tar` contains a tar for each class; `ILSVRC2012_img_val.tar` contains all
validation images. A file of the development kit lists the class number of each validation image.
The kit maps these numbers to classes only in the MATLAB file `meta.mat`. To avoid reading this
file, `recipes/data/imagenet-2012-synsets.txt` lists the classes in the order of their numbers.
A label is an index into the sorted list of the WordNet numbers of the classes, as is usual.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from pydantic import Field

from trimaran import paths, pool
from trimaran.data.contracts import Counted, LicensedFiles, Name
from trimaran.data.packing.listing import (
    Found,
    Listing,
    Sample,
    fingerprint,
    is_image,
    is_utf8,
    readable,
)
from trimaran.errors import RunError
from trimaran.reporting import Advance, Reporter

TRAIN, VAL = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"


_CHUNK = 1 << 20


class ImageNet(LicensedFiles):
    """The data contract of the images of ILSVRC 2012 in the official tar files."""

    reader: Literal["ilsvrc2012"]
    splits: dict[Name, Counted] = Field(min_length=1)

    @property
    def classes(self) -> list[str]:
        """The names of the classes, in the order of their labels."""
        return class_names(sorted(synsets()))

    def listing(self, folder: Path, unpacked: Path, reporter: Reporter) -> Listing:
        """List the images in the verified tar files in `folder`."""
        return listing(folder, pool.cores(), reporter)


class Task(NamedTuple):
    """One tar to list: the `size` bytes from byte `start` of the file `file`.

    Attributes:
        root: the folder that contains `file`.
        file: an official tar file, which may contain the tar of a class.
        number: WordNet number of the class; "" for the tar of the validation images.
    """

    root: str
    file: str
    number: str
    start: int
    size: int


def is_here(root: Path) -> bool:
    """Return True if `root` contains one of the official tar files."""
    return any((root / name).is_file() for name in (TRAIN, VAL))


def synsets() -> dict[str, str]:
    """Return a dictionary that maps the WordNet number of each class to its name.

    The classes are in the order of their numbers in ILSVRC2012.
    """
    path = paths.repository() / "recipes/data/imagenet-2012-synsets.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def class_names(numbers: list[str]) -> list[str]:
    """Return a unique name such as `n02119789 kit fox` for each WordNet number.

    A name without the number is not unique: two classes are called `crane`.
    """
    names = synsets()
    return [f"{number} {names[number]}" for number in numbers]


def listing(root: Path, workers: int, reporter: Reporter) -> Listing:
    """List the images of the tar files in `root`.

    Raises:
        RunError: a tar file is missing or damaged, or its classes are not the classes of ImageNet.
    """
    missing = [name for name in (TRAIN, VAL, DEVKIT) if not (root / name).is_file()]
    if missing:
        raise RunError(
            f"{root} lacks {', '.join(missing)}", code="file-missing",
            hint="`trimaran data get imagenet-2012` explains how to get the files",
        )
    order = list(synsets())
    labels = {number: label for label, number in enumerate(sorted(order))}
    truth = [labels[order[number - 1]] for number in _ground_truth(root / DEVKIT, len(order))]
    classes, ignored = _class_tars(root, labels)
    tasks = [Task(str(root), VAL, "", 0, (root / VAL).stat().st_size), *classes]
    with reporter.bar(f"listing {root}", len(tasks), unit="tars") as advance:
        results = dict(pool.run(scan, tasks, workers, advance))
    empty = [number for number in labels if not results[number].samples]
    if empty:
        raise RunError(f"{root / TRAIN}: {empty[0]}.tar contains no images", code="class-empty")
    val = results[""].samples
    if len(val) != len(truth):
        raise RunError(f"{root / VAL} has {len(val):,} images, {DEVKIT} {len(truth):,} labels",
                       code="data-mismatch")
    train = [
        sample._replace(labels=(label,))
        for number, label in labels.items()
        for sample in results[number].samples
    ]
    val = [sample._replace(labels=(label,)) for sample, label in zip(val, truth, strict=True)]
    return Listing(
        root, class_names(sorted(order)), {"train": train, "val": val},
        fingerprint(f"{key}:{results[key].stamp}" for key in sorted(results)),
        [*ignored, *(name for result in results.values() for name in result.ignored)],
    )


def scan(task: Task, advance: Advance) -> tuple[str, Found]:
    """List the images in the tar of `task`, and the names of its members that are not images.

    Returns:
        The WordNet ID of the class (`task.number`), which is "" for the tar of the validation
        images; and the images, with the names of the other members.
    """
    path, split = Path(task.root) / task.file, f"train/{task.number}" if task.number else "val"
    samples: list[Sample] = []
    ignored: list[str] = []
    with readable(path):
        for member in _files(path, task.start, task.size):
            if not (member.isfile() and is_image(_base(member))):
                ignored.append(f"{task.file}: {member.name}")
                continue
            if not is_utf8(member.name):
                raise RunError(f"{path} contains the name {member.name!r}, which is not UTF-8",
                               code="name-invalid")
            name = f"{split}/{member.name}"
            samples.append(Sample(name, (0,), task.file, member.offset_data, member.size))
    facts = path.stat()
    advance(1)
    samples.sort()
    stamp = f"{len(samples)}:{facts.st_size}:{facts.st_mtime_ns}"
    return task.number, Found(samples, stamp, ignored, [])


def _class_tars(root: Path, labels: dict[str, int]) -> tuple[list[Task], list[str]]:
    """Find the tar of each class in the tar of the training images.

    Returns:
        For each class, the place of its tar, as a `Task` for `scan`; and the names of the other
        members of the tar of the training images.
    """
    path = root / TRAIN
    with readable(path):
        members = list(_files(path, 0, path.stat().st_size))
    tars = [one for one in members if one.name.endswith(".tar") and not _base(one).startswith(".")]
    tasks = [
        Task(str(root), TRAIN, one.name.removesuffix(".tar"), one.offset_data, one.size)
        for one in tars
    ]
    found = {task.number for task in tasks}
    wrong = sorted(found ^ labels.keys())
    if wrong:
        raise RunError(
            f"{path} does not contain the tars of the {len(labels):,} classes of ImageNet:"
            f" {wrong[0]}.tar is {'unknown' if wrong[0] in found else 'missing'}",
            code="data-mismatch",
        )
    return tasks, [f"{TRAIN}: {one.name}" for one in members if one not in tars]


def _files(path: Path, start: int, size: int) -> Iterator[tarfile.TarInfo]:
    """Yield the members, without folders, of the tar of `size` bytes at byte `start` of `path`.

    The offsets of the members count from the beginning of the file `path`.

    The end of the tar is checked, because Python's tarfile treats a damaged header as the end, and
    continues into the next tar if the end is missing. Images could be lost or get a wrong class.
    """
    end = start + size
    with path.open("rb") as stream:
        stream.seek(start)
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                if member.offset_data + member.size > end:
                    raise _damaged(path, member.offset, "the member there exceeds the tar")
                if not member.isdir():
                    yield member
            if not _only_zeros(stream, tar.offset, end):
                raise _damaged(path, tar.offset, "neither a member nor the end of the tar follows")


def _only_zeros(stream: BinaryIO, start: int, end: int) -> bool:
    """Return True if all bytes of `stream` from `start` to `end` are zeros, as at the end of a tar.

    The end of a tar has at least one block of 512 zeros. All bytes are checked, because a failed
    download can leave zeros in the middle of a file.
    """
    stream.seek(start)
    left = end - start
    if left < tarfile.BLOCKSIZE:
        return False
    while left and (block := stream.read(min(left, _CHUNK))):
        if block.count(0) < len(block):
            return False
        left -= len(block)
    return left == 0


def _damaged(path: Path, at: int, fault: str) -> RunError:
    return RunError(f"{path} is damaged at byte {at:,}: {fault}", code="data-damaged",
                    hint="download it again")


def _base(member: tarfile.TarInfo) -> str:
    """Return the member's name without its folders."""
    return member.name.rpartition("/")[2]


def _ground_truth(devkit: Path, classes: int) -> list[int]:
    """Return the class of each validation image: a number of ILSVRC2012, counted from 1."""
    with readable(devkit), tarfile.open(devkit, "r:gz") as tar:
        member = tar.extractfile(TRUTH)
        words = member.read().split() if member else []
    numbers = [int(word) if word.isdigit() else 0 for word in words]
    if not numbers or not all(0 < number <= classes for number in numbers):
        raise RunError(f"{devkit}: a line of {TRUTH} is not a class from 1 to {classes:,}",
                       code="data-damaged", hint="download it again")
    return numbers


MODEL = ImageNet
