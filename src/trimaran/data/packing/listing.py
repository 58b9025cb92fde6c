"""Which samples there are: names, labels, and where their bytes lie in files or archives."""

from __future__ import annotations

import csv
import functools
import hashlib
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shards.kinds import Kind
from trimaran.errors import RunError, unreadable
from trimaran.reporting import Reporter

if TYPE_CHECKING:
    from trimaran.data.packing.videos import Clip

ENCODINGS = {".jpg": "jpg", ".jpeg": "jpg", ".png": "png", ".dcm": "dcm"}
SHOWN = 10
"""Faults of one kind that are named; the others are counted."""

class Sample(NamedTuple):
    """One sample: `size` bytes at `offset` of `file`, which is below the listing's root.

    Those of a sequence are in the files `frames` of the folder or zip `file`, or it is a `clip` of
    that video.
    """

    name: str
    labels: tuple[int, ...]
    file: str
    offset: int
    size: int
    frames: tuple[str, ...] = ()
    clip: Clip | None = None


class Found(NamedTuple):
    """What one class folder or tar holds; `stamp` changes when any of its files does.

    Attributes:
        ignored: names of files that are no images.
        lost: images that it seems to hold, and that cannot be packed from there; a line each.
    """

    samples: list[Sample]
    stamp: str
    ignored: list[str]
    lost: list[str]


@dataclass(frozen=True)
class Listing:
    """All samples of a source, each split sorted by class and name.

    Attributes:
        root: the source's folder.
        classes: their names; a label is a place in this list.
        splits: name -> samples.
        fingerprint: SHA-256 over names, labels, sizes and times of all files.
        ignored: names of the files beside the images, which are left out, sorted.
        kind: what the samples are.
        contents: SHA-256 of the files, by name, where a contract pins them.
    """

    root: Path
    classes: list[str]
    splits: dict[str, list[Sample]]
    fingerprint: str
    ignored: list[str] = field(default_factory=list)
    kind: Kind = field(default_factory=Kind)
    contents: dict[str, str] = field(default_factory=dict)

    @property
    def has_videos(self) -> bool:
        """Whether a sample is (part of) a video."""
        return any(one.clip for samples in self.splits.values() for one in samples)

    @property
    def encodings(self) -> set[str]:
        """The kinds of images, by their names' endings; frames of videos become JPEG files."""
        return ({"jpg"} if self.has_videos else set()) | {
            ENCODINGS[os.path.splitext(name)[1].lower()]  # noqa: PTH122 - millions of them
            for samples in self.splits.values()
            for sample in samples if not sample.clip
            for name in sample.frames or (sample.name,)
        }

    def untaught(self) -> list[str]:
        """Return the classes that another split has, and train has no images of."""
        if "train" not in self.splits:
            return []
        taught = {label for one in self.splits["train"] for label in one.labels}
        met = {label for of in self.splits.values() for one in of for label in one.labels}
        return [self.classes[label] for label in sorted(met - taught)]

    def warn_of_untaught(self, reporter: Reporter) -> None:
        """Say which classes nothing can learn, and the other splits have."""
        if untaught := self.untaught():
            reporter.warn(f"{self.root}: train has no images of {', '.join(untaught)}, other"
                          " splits have")


def fingerprint(stamps: Iterable[str]) -> str:
    """Return one SHA-256 for all `stamps`."""
    return hashlib.sha256("\n".join(stamps).encode()).hexdigest()


def is_image(name: str) -> bool:
    """Return whether a file called `name` is packed; hidden ones are what systems leave there."""
    ending = os.path.splitext(name)[1].lower()  # noqa: PTH122 - many of them
    return ending in ENCODINGS and not name.startswith(".")


@contextmanager
def readable(path: Path, doing: str = "read") -> Iterator[None]:
    """Raise RunError where the publisher's file at `path`, archive or table, cannot be read."""
    try:
        yield
    except (
        OSError, EOFError, UnicodeDecodeError, KeyError, csv.Error, tarfile.TarError,
        zipfile.BadZipFile, zlib.error,
    ) as error:
        raise RunError(f"{path} cannot be {doing}: {error}", hint="download it again") from error


def is_utf8(name: str) -> bool:
    """Return False for a name that is no text, as files and members of tars may have."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read(root: Path, sample: Sample) -> tuple[bytes, ...]:
    """Return the image files of `sample`: one, or those of a sequence.

    Raises:
        RunError: a file is gone, unreadable or shorter than it was.
    """
    path = root / sample.file
    try:
        if sample.frames and path.is_file():
            facts = path.stat()
            archive = _opened(path, facts.st_size, facts.st_mtime_ns)
            found = tuple(map(archive.read, sample.frames))
        elif sample.frames:
            found = tuple((path / name).read_bytes() for name in sample.frames)
        else:
            with path.open("rb") as file:
                found = (os.pread(file.fileno(), sample.size, sample.offset),)
    except OSError as error:
        raise unreadable(error.filename or path, error, RunError) from error
    except (zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise RunError(f"{path} is damaged: {error}", hint="download it again") from error
    if sum(map(len, found)) != sample.size:
        raise RunError(f"{path} has not the size that it had when it was listed", hint="pack again")
    return found


@functools.lru_cache(maxsize=1)  # reading its list of members takes longer than a member
def _opened(path: Path, size: int, changed: int) -> zipfile.ZipFile:
    """Return the zip at `path`, as it was when it had this size and this time of change."""
    return zipfile.ZipFile(path)
