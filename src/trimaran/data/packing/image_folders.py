"""What a folder of images holds, by the way in which it says so."""

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
    """List what is to be packed from `source` into `out`.

    Args:
        source: ImageNet's tars, NIH's chest X-rays, or an image folder.
        out: the packed data set to be, which may not lie in `source`.
        labels: CSV file that names the classes of each image; None: its folder is its class.
        in_sequences: each folder of a split is one sample, its images are the frames.
        untrained: there may be no split `train`.
        workers: processes.
        reporter: shows progress.
        classes: those that `labels` may name; None: whatever it names.
        skip_missing: leave out images that a table names, and that are not there.

    Raises:
        UsageError: it is not laid out so.
    """
    if labels is not None and in_sequences:
        raise UsageError("--labels and --sequences: a sequence has no labels")
    if classes is not None and labels is None:
        raise UsageError("--classes says what the table of --labels may name: give --labels, too")
    if ilsvrc.is_here(source):
        return _of_tars(source, out, workers, reporter)
    class_folders.refuse_within(source, out)
    if labels is None and chestxray.is_here(source):
        contract = contracts.load("chestxray14")
        assert isinstance(contract, chestxray.ChestXray14)  # noqa: S101 - it is the repository's own
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
    """List ImageNet's tars, and what is beside them but for `out`, which may be there, too."""
    found = ilsvrc.listing(source, workers, reporter)
    own = os.path.relpath(os.path.realpath(out), os.path.realpath(source))
    images, others = leftovers.beside(source, {ilsvrc.TRAIN, ilsvrc.VAL, ilsvrc.DEVKIT, own})
    leftovers.warn(source, images, "only the tars are read", reporter)
    return replace(found, ignored=[*found.ignored, *others])
