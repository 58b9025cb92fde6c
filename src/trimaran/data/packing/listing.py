"""Which samples there are: names, classes, and where their bytes lie in files or tars."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trimaran import pool
from trimaran.data.kinds import Kind
from trimaran.data.packing.videos import Clip
from trimaran.errors import RunError, UsageError, unreadable
from trimaran.reporting import Advance, Reporter

ENCODINGS = {".jpg": "jpg", ".jpeg": "jpg", ".png": "png", ".dcm": "dcm"}
SHOWN = 10
"""Faults of one kind that are named; the others are counted."""

LAYOUT = "DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg (.jpeg, .png; any names of splits)"


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
        ignored: names of the files beside the images, which are left out.
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


def of_folder(root: Path, workers: int, reporter: Reporter, *, untrained: bool = False) -> Listing:
    """List the image folder `root`; the classes are the sorted names of the folders in `train`.

    Args:
        root: the folder.
        workers: processes.
        reporter: shows progress, and is warned of images that lie in no class.
        untrained: there may be no `train`; the classes are then those of all splits.

    Raises:
        UsageError: it is not laid out as one, a split has a class that `train` has not, or
            images would be lost.
    """
    folders = _class_folders(root)
    classes = _classes(root, folders, untrained)
    _warn_of_unsorted(root, reporter)
    tasks = [
        (str(root), f"{split}/{name}", classes.index(name))
        for split, names in folders.items()
        for name in names
    ]
    with reporter.bar(f"listing {root}", len(tasks), unit="classes") as advance:
        results = dict(pool.run(scan_folder, tasks, workers, advance))
    _refuse_lost([line for result in results.values() for line in result.lost])
    splits: dict[str, list[Sample]] = {split: [] for split in folders}
    for _, path, _ in tasks:
        splits[path.partition("/")[0]] += results[path].samples
    empty = [split for split, samples in splits.items() if not samples]
    if empty:
        raise UsageError(f"{root / empty[0]} has no images", hint=f"the layout is {LAYOUT}")
    return Listing(
        root, classes, splits, fingerprint(results[path].stamp for _, path, _ in tasks),
        [name for _, path, _ in tasks for name in results[path].ignored],
    )


def refuse_within(root: Path, folder: Path) -> None:
    """Refuse to pack into a `folder` in the image folder `root`: it would be a split or a class.

    Raises:
        UsageError: `folder` is `root` or lies below it.
    """
    # Not Path.resolve: it fails for a link to itself, about which the packing tells better.
    if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(root)):
        raise UsageError(
            f"{folder} lies in {root}, which is to be packed",
            hint="choose a folder outside of it",
        )


def fingerprint(stamps: Iterable[str]) -> str:
    """Return one SHA-256 for all `stamps`."""
    return hashlib.sha256("\n".join(stamps).encode()).hexdigest()


def is_image(name: str) -> bool:
    """Return whether a file called `name` is packed; hidden ones are what systems leave there."""
    ending = os.path.splitext(name)[1].lower()  # noqa: PTH122 - many of them
    return ending in ENCODINGS and not name.startswith(".")


def is_utf8(name: str) -> bool:
    """Return False for a name that is no text, as files and members of tars may have."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def scan_folder(task: tuple[str, str, int], advance: Advance) -> tuple[str, Found]:
    """List one class: the task is the root, the folder's path below it, and the label."""
    root, below, label = task
    samples, digest = [], hashlib.sha256(f"{below}:{label}".encode())
    labels = (label,)  # one object for all of them
    ignored: list[str] = []
    lost: list[str] = []
    with os.scandir(Path(root) / below) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if (fault := _lost(entry)) is not None:
                lost.append(fault)
                continue
            if not (is_image(entry.name) and entry.is_file()):
                ignored.append(f"{below}/{entry.name}")
                continue
            if not is_utf8(entry.name):
                raise UsageError(
                    f"{Path(root) / below} holds the name {entry.name!r}, which is no UTF-8"
                )
            facts, name = entry.stat(), f"{below}/{entry.name}"
            digest.update(f"{entry.name}:{facts.st_size}:{facts.st_mtime_ns}\n".encode())
            samples.append(Sample(name, labels, name, 0, facts.st_size))
    advance(1)
    return below, Found(samples, digest.hexdigest(), ignored, lost)


def _lost(entry: os.DirEntry[str]) -> str | None:
    """Return which images an entry of a class folder has, and cannot give; or None."""
    if entry.name.startswith("."):
        return None
    if _is_broken(entry):
        return f"{entry.path} is a link to nothing"
    if not entry.is_dir():
        return None
    below = [str(Path(place, name)) for place, _, names in os.walk(entry.path)
             for name in sorted(names) if is_image(name)]
    return f"{below[0]}: {len(below):,} images there lie too deep" if below else None


def _is_broken(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not os.path.exists(entry.path)  # noqa: PTH110 - Path: no loops


def _refuse_lost(lost: list[str]) -> None:
    """Refuse a source of which images would be left out without anybody's wish."""
    if not lost:
        return
    more = [f"and {len(lost) - SHOWN:,} more"] if len(lost) > SHOWN else []
    raise UsageError(
        "\n".join([*lost[:SHOWN], *more]),
        hint="images are read from SPLIT/CLASS: move them there, or out of the source; mend or"
        " remove the links (`find SOURCE -xtype l` lists them)",
    )


def _warn_of_unsorted(root: Path, reporter: Reporter) -> None:
    """Warn of images beside the folders of classes or of splits: their class is unknown."""
    for place in (root, *(root / name for name in _subfolders(root))):
        names = sorted(name for name in os.listdir(place) if is_image(name))  # noqa: PTH208 - names
        if names:
            reporter.warn(
                f"{place}: {len(names):,} images are left out, because they lie in no class; the"
                f" first is {names[0]} (the layout is {LAYOUT})"
            )


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


def _class_folders(root: Path) -> dict[str, list[str]]:
    """Return the names of the class folders of each split."""
    if not root.is_dir():
        raise UsageError(f"{root} is no folder", hint=f"name one with {LAYOUT}")
    found = {split: _subfolders(root / split) for split in _subfolders(root)}
    with_classes = {split: names for split, names in found.items() if names}
    bad = [split for split in with_classes if re.fullmatch(r"[a-z0-9][a-z0-9-]*", split) is None]
    if not with_classes:
        raise UsageError(f"{root} is no image folder", hint=f"the layout is {LAYOUT}")
    if bad:
        raise UsageError(
            f"{root / bad[0]} cannot be the name of a split",
            hint="small letters, digits and '-' can",
        )
    for split, names in with_classes.items():
        for name in names:
            if not is_utf8(name):
                raise UsageError(f"{root / split} holds the name {name!r}, which is no UTF-8")
    return with_classes


def _classes(root: Path, folders: dict[str, list[str]], untrained: bool) -> list[str]:
    """Return the sorted classes; one that `train` has not would shift the labels of others."""
    if not (root / "train").is_dir():
        if not untrained:
            raise no_train(root, folders)
        return sorted({name for names in folders.values() for name in names})
    classes = folders.get("train", [])
    known = set(classes)
    other = [
        f"{root / split / name}"
        for split, names in folders.items()
        for name in names
        if name not in known
    ]
    if other:
        more = f", and {len(other) - 1:,} more" if len(other) > 1 else ""
        raise UsageError(
            f"{other[0]}: a class that {root / 'train'} does not have{more}",
            hint="remove the folder, or put images of its class into train",
        )
    return classes


def no_train(root: Path, splits: Iterable[str]) -> UsageError:
    """Return the error for a source without a split to train on."""
    return UsageError(
        f"{root} has no folder train, only {', '.join(splits)}",
        hint=f"the layout is {LAYOUT}; --no-train packs it as it is, to evaluate on",
    )


def _subfolders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
        _refuse_lost([f"{one.path} is a link to nothing" for one in shown if _is_broken(one)])
        return sorted(one.name for one in shown if one.is_dir())
