"""Images in folders of their classes, SPLIT/CLASS/*.jpg: what is there, and what would be lost."""

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

    Without `train`, if it may be `untrained`, they are those of all splits. The reporter is warned
    of images that lie in no class; other files are `ignored`.

    Raises:
        UsageError: it is not laid out as one, a split has a class that `train` has no images of,
            or images would be lost.
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
        raise UsageError(f"{root / empty[0]} has no images", hint=f"the layout is {LAYOUT}")
    images, others = leftovers.beside(root, results)
    _warn_of_unsorted(root, images, reporter)
    return Listing(
        root, classes, splits, fingerprint(results[path].stamp for _, path, _ in tasks),
        sorted([*others, *(name for found in results.values() for name in found.ignored)]),
    )


def _refuse_untaught(
    root: Path, folders: Mapping[str, list[str]], results: Mapping[str, Found]
) -> None:
    """Refuse a class without images to train on: other splits would be judged by it."""
    empty = [name for name in folders.get("train", ()) if not results[f"train/{name}"].samples]
    if empty:
        more = f", nor have {len(empty) - 1:,} more classes" if len(empty) > 1 else ""
        raise UsageError(
            f"{root / 'train' / empty[0]} has no images{more}",
            hint="put images of the class there, or remove its folder from every split",
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


def scan_folder(task: tuple[str, str, int], advance: Advance) -> tuple[str, Found]:
    """List one class: the task is the root, the folder's path below it, and the label."""
    root, below, label = task
    samples, digest = [], hashlib.sha256(f"{below}:{label}".encode())
    labels = (label,)  # one object for all of them
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
                    f"{Path(root) / below} holds the name {entry.name!r}, which is no UTF-8"
                )
            facts, name = entry.stat(), f"{below}/{entry.name}"
            digest.update(f"{entry.name}:{facts.st_size}:{facts.st_mtime_ns}\n".encode())
            samples.append(Sample(name, labels, name, 0, facts.st_size))
    advance(1)
    return below, Found(samples, digest.hexdigest(), ignored, lost)


def _warn_of_unsorted(root: Path, images: list[str], reporter: Reporter) -> None:
    """Warn of images beside the folders of classes or of splits: their class is unknown."""
    for folder, names in itertools.groupby(images, lambda name: name.rpartition("/")[0]):
        first, *others = (name.rpartition("/")[2] for name in names)
        reporter.warn(
            f"{root / folder}: {1 + len(others):,} images are left out, because they lie in no"
            f" class; the first is {first} (the layout is {LAYOUT})"
        )


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
        broken = [f"{one.path} is a link to nothing" for one in shown if leftovers.is_broken(one)]
        leftovers.refuse_lost(broken, PLACE)
        return sorted(one.name for one in shown if one.is_dir())
