"""Choose the reader for a folder of images by its layout, and list its samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trimaran.data import contracts
from trimaran.data.packing import chestxray, class_folders, ilsvrc, labelled, leftovers, sequences
from trimaran.data.packing.listing import Listing
from trimaran.errors import UsageError
from trimaran.reporting import Reporter


def listing_of(
    source: Path, out: Path, *, labels: Path | None, in_sequences: bool, untrained: bool,
    workers: int, reporter: Reporter, classes: Sequence[str] | None = None,
    skip_missing: bool = False,
) -> Listing:
    """List the samples that will be packed from `source` into `out`.

    Args:
        source: folder with ImageNet's tar files, NIH's chest X-rays, or images.
        out: folder of the packed data set, which must be outside of an image folder.
        labels: CSV file with the classes of each image; None if the folder of an image is its
            class.
        in_sequences: whether each folder of a split is one sample, with its images as frames.
        untrained: allow that the split `train` is missing.
        workers: number of processes.
        reporter: shows progress and warnings.
        classes: the classes that may occur in `labels`; None if all classes are allowed.
        skip_missing: leave out missing images that a table lists.

    Raises:
        UsageError: the source has an unknown layout, or two arguments exclude each other.
        RunError: a published file is missing or damaged.
    """
    if labels is not None and in_sequences:
        raise UsageError("--labels, --sequences: they exclude each other; a sequence has no labels",
                         code="arguments-conflict")
    if classes is not None and labels is None:
        raise UsageError("--classes needs --labels: it lists the classes of that table",
                         code="arguments-conflict")
    if ilsvrc.is_here(source):
        return _of_tars(source, out, workers, reporter)
    class_folders.refuse_within(source, out)
    if labels is None and chestxray.is_here(source):
        contract = contracts.load("chestxray14")
        assert isinstance(contract, chestxray.ChestXray14)  # noqa: S101 - for mypy
        images = source / chestxray.FOLDER
        return chestxray.listing(contract, source, images, reporter, skip_missing=skip_missing)
    if labels is not None or in_sequences:
        found = (
            sequences.listing(source, reporter) if labels is None
            else labelled.listing(
                source, labels, reporter, classes=classes, skip_missing=skip_missing
            )
        )
        if "train" not in found.splits and not untrained:
            raise class_folders.no_train(source, found.splits)
        return found
    return class_folders.listing(source, workers, reporter, untrained=untrained)


def _of_tars(source: Path, out: Path, workers: int, reporter: Reporter) -> Listing:
    """Return the images in ImageNet's tar files in `source`.

    `Listing.ignored` names the files in `source` that are not read; `out`, which may be below
    `source`, is not among them. Images beside the tar files are reported as a warning.
    """
    found = ilsvrc.listing(source, workers, reporter)
    own = os.path.relpath(os.path.realpath(out), os.path.realpath(source))
    images, others = leftovers.beside(source, {ilsvrc.TRAIN, ilsvrc.VAL, ilsvrc.DEVKIT, own})
    leftovers.warn(source, images, "only the tars are read", reporter)
    return replace(found, ignored=[*found.ignored, *others])
