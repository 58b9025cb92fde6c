"""List images that are sorted into a folder for each class (SPLIT/CLASS/*.jpg).

Images in other folders cause an error or a warning, so that no image is left out unnoticed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from trimaran import pool
from trimaran.data.packing import leftovers
from trimaran.data.packing.listing import (
    Found,
    Listing,
    Sample,
    fingerprint,
    is_image,
    is_utf8,
)
from trimaran.errors import UsageError
from trimaran.reporting import Advance, Reporter

LAYOUT = "DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg (.jpeg, .png; any names of splits)"
PLACE = "SPLIT/CLASS"


def listing(root: Path, workers: int, reporter: Reporter, *, untrained: bool = False) -> Listing:
    """List the image folder `root`; the classes are the sorted names of the folders in `train`.

    Args:
        root: folder with the layout `LAYOUT`.
        workers: number of processes.
        reporter: shows progress, and warns of images that belong to no class.
        untrained: allow that `train` is missing. The classes are then taken from all splits.

    Raises:
        UsageError: `root` has another layout, a class has no images in `train`, or images would be
            left out, because a link is broken or because they are in a subfolder of a class.
    """
    folders = _class_folders(root)
    classes = _classes(root, folders, untrained)
    tasks = [
        (str(root), f"{split}/{name}", classes.index(name))
        for split, names in folders.items()
        for name in names
    ]
    with reporter.bar(f"listing {root}", len(tasks), unit="classes") as advance:
        results = dict(pool.run(scan_folder, tasks, workers, advance))
    leftovers.refuse_lost([line for result in results.values() for line in result.lost], PLACE)
    _refuse_untaught(root, folders, results)
    splits: dict[str, list[Sample]] = {split: [] for split in folders}
    for _, path, _ in tasks:
        splits[path.partition("/")[0]] += results[path].samples
    empty = [split for split, samples in splits.items() if not samples]
    if empty:
        raise UsageError(f"{root / empty[0]} has no images", code="split-empty",
                         hint=f"the layout is {LAYOUT}")
    images, others = leftovers.beside(root, results)
    _warn_of_unsorted(root, images, reporter)
    return Listing(
        root, classes, splits, fingerprint(results[path].stamp for _, path, _ in tasks),
        sorted([*others, *(name for found in results.values() for name in found.ignored)]),
    )


def _refuse_untaught(
    root: Path, folders: Mapping[str, list[str]], results: Mapping[str, Found]
) -> None:
    """Check that every class of `train` has images: a network cannot learn an empty class."""
    empty = [name for name in folders.get("train", ()) if not results[f"train/{name}"].samples]
    if empty:
        more = f", nor have {len(empty) - 1:,} more classes" if len(empty) > 1 else ""
        raise UsageError(
            f"{root / 'train' / empty[0]} has no images{more}", code="class-empty",
            hint="add images of the class, or remove its folder from every split",
        )


def refuse_within(root: Path, folder: Path) -> None:
    """Raise UsageError if the output `folder` is in the source `root`.

    There, it would be read as a split or a class.
    """
    # Path.resolve would fail for a link to itself; the packing reports such a link more clearly.
    if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(root)):
        raise UsageError(
            f"the output folder {folder} is inside the source {root}", code="arguments-conflict",
            hint="choose a folder outside of the source",
        )


def scan_folder(task: tuple[str, str, int], advance: Advance) -> tuple[str, Found]:
    """List the images of one class.

    Args:
        task: the folder of the data set, the class folder below it, and the label of the class.
        advance: function that is called with 1 at the end.

    Returns:
        The class folder, as in `task`, and its samples.
    """
    root, below, label = task
    samples, digest = [], hashlib.sha256(f"{below}:{label}".encode())
    labels = (label,)  # all samples share one object, which saves memory
    ignored: list[str] = []
    lost: list[str] = []
    with os.scandir(Path(root) / below) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if (fault := leftovers.lost(entry)) is not None:
                lost.append(fault)
                continue
            if not (is_image(entry.name) and entry.is_file()):
                ignored.append(f"{below}/{entry.name}")
                continue
            if not is_utf8(entry.name):
                raise UsageError(
                    f"{Path(root) / below} contains the name {entry.name!r}, which is not UTF-8",
                    code="name-invalid", hint="rename the file",
                )
            facts, name = entry.stat(), f"{below}/{entry.name}"
            digest.update(f"{entry.name}:{facts.st_size}:{facts.st_mtime_ns}\n".encode())
            samples.append(Sample(name, labels, name, 0, facts.st_size))
    advance(1)
    return below, Found(samples, digest.hexdigest(), ignored, lost)


def _warn_of_unsorted(root: Path, images: list[str], reporter: Reporter) -> None:
    """Warn of images outside of the class folders, because their class is unknown."""
    for folder, names in itertools.groupby(images, lambda name: name.rpartition("/")[0]):
        first, *others = (name.rpartition("/")[2] for name in names)
        reporter.warn(
            f"{root / folder}: {1 + len(others):,} images are left out, because they are in no"
            f" class folder; the first is {first} (the layout is {LAYOUT})"
        )


def _class_folders(root: Path) -> dict[str, list[str]]:
    """Return the names of the class folders of each split."""
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder", code="layout-invalid",
                         hint=f"name a folder with the layout {LAYOUT}")
    found = {split: _subfolders(root / split) for split in _subfolders(root)}
    with_classes = {split: names for split, names in found.items() if names}
    bad = [split for split in with_classes if re.fullmatch(r"[a-z0-9][a-z0-9-]*", split) is None]
    if not with_classes:
        raise UsageError(f"{root} is not an image folder", code="layout-invalid",
                         hint=f"the layout is {LAYOUT}")
    if bad:
        raise UsageError(
            f"{root / bad[0]}: invalid name of a split", code="name-invalid",
            hint="use lower-case letters, digits and '-'",
        )
    for split, names in with_classes.items():
        for name in names:
            if not is_utf8(name):
                raise UsageError(f"{root / split} contains the name {name!r}, which is not UTF-8",
                                 code="name-invalid", hint="rename the folder")
    return with_classes


def _classes(root: Path, folders: dict[str, list[str]], untrained: bool) -> list[str]:
    """Return the sorted names of the classes in `train`.

    A class that exists only in another split is an error, because it would shift the labels of
    the other classes.
    """
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
            f"{other[0]}: {root / 'train'} does not have this class{more}", code="class-unknown",
            hint="remove the folder, or add images of the class to train",
        )
    return classes


def no_train(root: Path, splits: Iterable[str]) -> UsageError:
    """Return the error for a source without the split `train`."""
    return UsageError(
        f"{root} has no folder train, only {', '.join(splits)}", code="split-missing",
        hint=f"the layout is {LAYOUT}; for a data set that is only evaluated, pass --no-train",
    )


def _subfolders(folder: Path) -> list[str]:
    return sorted(one.name for one in leftovers.shown(folder, PLACE) if one.is_dir())
