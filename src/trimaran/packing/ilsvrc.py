"""The official ImageNet-2012 tars, read where they are: nothing is unpacked.

`ILSVRC2012_img_train.tar` holds a tar for each class, `ILSVRC2012_img_val.tar` all images side
by side. Their labels are numbers in a file of the development kit; which class a number
is stands in the kit's `meta.mat` only, a MATLAB file. The same order is in
`recipes/data/imagenet-2012-synsets.txt`, one class a line, so that nothing has to read MATLAB.
Labels here are places in the sorted list of the classes' WordNet numbers, as everywhere else.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimaran import paths, pool
from trimaran.errors import RunError
from trimaran.packing.listing import Found, Listing, Sample, fingerprint
from trimaran.reporting import Advance, Reporter

TRAIN, VAL = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"


def is_here(root: Path) -> bool:
    """Return True if `root` holds one of the official tars."""
    return any((root / name).is_file() for name in (TRAIN, VAL))


def synsets() -> dict[str, str]:
    """Return the classes in the order of their ILSVRC2012 numbers: WordNet number -> name."""
    path = paths.repository() / "recipes/data/imagenet-2012-synsets.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def class_names(numbers: list[str]) -> list[str]:
    """Return `n02119789 kit fox` for each WordNet number; two classes share the name `crane`."""
    names = synsets()
    return [f"{number} {names[number]}" for number in numbers]


def listing(root: Path, workers: int, reporter: Reporter) -> Listing:
    """List the images of the tars in `root`.

    Raises:
        RunError: a tar is missing or damaged, or its classes are not ImageNet's.
    """
    missing = [name for name in (TRAIN, VAL, DEVKIT) if not (root / name).is_file()]
    if missing:
        raise RunError(
            f"{root} lacks {', '.join(missing)}", hint="`trimaran data get imagenet-2012` explains"
        )
    order = list(synsets())
    labels = {number: label for label, number in enumerate(sorted(order))}
    truth = [labels[order[number - 1]] for number in _ground_truth(root / DEVKIT, len(order))]
    tasks = [(str(root), VAL, "", 0), *_class_tars(root, labels)]
    with reporter.bar(f"listing {root}", len(tasks), unit="tars") as advance:
        results = dict(pool.run(scan, tasks, workers, advance))
    val = results[""].samples
    if len(val) != len(truth):
        raise RunError(f"{root / VAL} has {len(val):,} images, {DEVKIT} {len(truth):,} labels")
    train = [
        sample._replace(label=label)
        for number, label in labels.items()
        for sample in results[number].samples
    ]
    val = [sample._replace(label=label) for sample, label in zip(val, truth, strict=True)]
    return Listing(
        root, class_names(sorted(order)), {"train": train, "val": val},
        fingerprint(f"{key}:{results[key].stamp}" for key in sorted(results)),
    )


def scan(task: tuple[str, str, str, int], advance: Advance) -> tuple[str, Found]:
    """List one tar: the task is root, file, WordNet number ("": validation) and its position."""
    root, file, number, start = task
    path, split = Path(root) / file, f"train/{number}" if number else "val"
    with _readable(path), path.open("rb") as stream:
        stream.seek(start)
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            samples = [
                Sample(f"{split}/{member.name}", 0, file, member.offset_data, member.size)
                for member in tar
                if member.isfile()
            ]
    facts = path.stat()
    advance(1)
    samples.sort()
    return number, Found(samples, f"{len(samples)}:{facts.st_size}:{facts.st_mtime_ns}", 0)


def _class_tars(root: Path, labels: dict[str, int]) -> list[tuple[str, str, str, int]]:
    """Return a task for each tar inside the tar of the training images."""
    with _readable(root / TRAIN), tarfile.open(root / TRAIN, "r:") as tar:
        found = {member.name.removesuffix(".tar"): member.offset_data for member in tar}
    wrong = found.keys() ^ labels.keys()
    if wrong:
        raise RunError(
            f"{root / TRAIN} does not hold the tars of ImageNet's {len(labels):,} classes:"
            f" {sorted(wrong)[0]}.tar is {'unknown' if sorted(wrong)[0] in found else 'missing'}"
        )
    return [(str(root), TRAIN, number, offset) for number, offset in found.items()]


def _ground_truth(devkit: Path, classes: int) -> list[int]:
    """Return the ILSVRC2012 number, from 1, of each validation image."""
    with _readable(devkit), tarfile.open(devkit, "r:gz") as tar:
        member = tar.extractfile(TRUTH)
        words = member.read().split() if member else []
    numbers = [int(word) if word.isdigit() else 0 for word in words]
    if not numbers or not all(0 < number <= classes for number in numbers):
        raise RunError(f"{devkit}: {TRUTH} does not hold a class from 1 to {classes:,} a line")
    return numbers


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, tarfile.TarError, KeyError) as error:
        raise RunError(f"{path} cannot be read: {error}", hint="download it again") from error
