"""Describe the samples of a source: their names, labels, and positions in files or archives."""

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
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from shards.kinds import Kind
from trimaran.errors import RunError, unreadable
from trimaran.reporting import Reporter

if TYPE_CHECKING:
    from PIL import Image

    from trimaran.data.packing.videos import Clip

ENCODINGS = {".jpg": "jpg", ".jpeg": "jpg", ".png": "png", ".dcm": "dcm"}
SHOWN = 10
"""Maximum number of faults of one kind that a message lists; it only counts the others."""

class Samples(Protocol):
    """The checked samples of one split.

    All samples have the same number of frames. All frames have the same size, and either all are
    grey or all are in colour (RGB).
    """

    @property
    def name(self) -> str:
        """The name of the split."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of frames of a sample, and their height and width in pixels."""

    @property
    def channels(self) -> Literal[1, 3]:
        """The number of channels of a frame: 1 (grey) or 3 (RGB)."""

    def __len__(self) -> int: ...

    def labels(self, number: int) -> tuple[int, ...]:
        """Return the classes of the sample `number`."""

    def frames(self, number: int) -> Iterable[Image.Image]:
        """Return the frames of the sample `number`."""

    def histogram(self) -> list[int]:
        """Return the number of pixels in all frames that have each of the 256 values, by channel.

        The list has 256 numbers for each channel: red, then green, then blue.
        """


class Sample(NamedTuple):
    """One image, sequence or video of a listing.

    An image is the `size` bytes from byte `offset` of `file`, a path below the root of the listing.
    The images of a sequence are the files `frames` in the folder or zip `file`, or the frames of
    the part `clip` of the video `file`.
    """

    name: str
    labels: tuple[int, ...]
    file: str
    offset: int
    size: int
    frames: tuple[str, ...] = ()
    clip: Clip | None = None


class Found(NamedTuple):
    """The samples that were found in one class folder or tar.

    Attributes:
        stamp: a text that changes if any of the files changes.
        ignored: names of files that are not images.
        lost: a message for each broken link and each subfolder with images, which are not read.
    """

    samples: list[Sample]
    stamp: str
    ignored: list[str]
    lost: list[str]


@dataclass(frozen=True)
class Listing:
    """All samples of a source; the samples of each split are sorted by class and name.

    Attributes:
        root: the folder of the source.
        classes: names of the classes; a label is an index into this list.
        splits: name of the split -> samples.
        fingerprint: SHA-256 over names, labels, sizes and modification times of all files.
        ignored: sorted names of the other files, which are not packed.
        kind: the kind of the samples.
        contents: name of a file -> SHA-256, if a contract contains it.
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
        """Whether at least one sample is a video or a part of a video."""
        return any(one.clip for samples in self.splits.values() for one in samples)

    @property
    def encodings(self) -> set[str]:
        """The image formats of the samples, by their file names; frames of videos count as JPEG."""
        return ({"jpg"} if self.has_videos else set()) | {
            ENCODINGS[os.path.splitext(name)[1].lower()]  # noqa: PTH122 - millions of them
            for samples in self.splits.values()
            for sample in samples if not sample.clip
            for name in sample.frames or (sample.name,)
        }

    def untaught(self) -> list[str]:
        """Return the classes that have no images in train, but occur in another split."""
        if "train" not in self.splits:
            return []
        taught = {label for one in self.splits["train"] for label in one.labels}
        met = {label for of in self.splits.values() for one in of for label in one.labels}
        return [self.classes[label] for label in sorted(met - taught)]

    def warn_of_untaught(self, reporter: Reporter) -> None:
        """Print a warning if classes have no images in train, but occur in another split."""
        if untaught := self.untaught():
            reporter.warn(f"{self.root}: train has no images of {', '.join(untaught)}, but other"
                          " splits do")


def fingerprint(stamps: Iterable[str]) -> str:
    """Return the SHA-256 of all `stamps`: texts that change if a file of the source changes."""
    return hashlib.sha256("\n".join(stamps).encode()).hexdigest()


def is_image(name: str) -> bool:
    """Return True if a file called `name` is not hidden and has the extension of an image."""
    ending = os.path.splitext(name)[1].lower()  # noqa: PTH122 - many of them
    return ending in ENCODINGS and not name.startswith(".")


@contextmanager
def readable(path: Path, doing: str = "read") -> Iterator[None]:
    """Run the `with` block, which reads a published file; convert its errors into RunError.

    Args:
        path: the file that is read.
        doing: the last word of the message "PATH cannot be ...", such as "read" or "unpacked".
    """
    try:
        yield
    except (
        OSError, EOFError, UnicodeDecodeError, KeyError, csv.Error, tarfile.TarError,
        zipfile.BadZipFile, zlib.error,
    ) as error:
        raise RunError(f"{path} cannot be {doing}: {error}", code="data-damaged",
                       hint="download it again") from error


def is_utf8(name: str) -> bool:
    """Return whether `name` is UTF-8; names of files and tar members can be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read(root: Path, sample: Sample) -> tuple[bytes, ...]:
    """Return the bytes of the image files of `sample`: one file, or the frames of a sequence.

    Raises:
        RunError: a file is missing, unreadable, damaged, or its size has changed.
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
        raise RunError(f"{path} is damaged: {error}", code="data-damaged",
                       hint="download it again") from error
    if sum(map(len, found)) != sample.size:
        raise RunError(f"the size of {path} changed after it was listed", code="source-changed",
                       hint="pack again into a new folder")
    return found


@functools.lru_cache(maxsize=1)  # opening a zip reads its list of members, which is slow
def _opened(path: Path, size: int, changed: int) -> zipfile.ZipFile:
    """Open the zip at `path`; return the already opened zip if the file has not changed.

    `size` and `changed` (size and modification time of the file) are only keys of the cache.
    """
    return zipfile.ZipFile(path)
