"""What a folder of images holds, by the way in which it says so."""

from __future__ import annotations

from pathlib import Path

from trimaran.data.packing import ilsvrc, labelled, listing, sequences
from trimaran.data.packing.listing import Listing
from trimaran.errors import UsageError
from trimaran.reporting import Reporter


def listing_of(
    source: Path, out: Path, *, labels: Path | None, in_sequences: bool, untrained: bool,
    workers: int, reporter: Reporter,
) -> Listing:
    """List what is to be packed from `source` into `out`.

    Args:
        source: ImageNet's tars, or an image folder.
        out: the packed data set to be, which may not lie in `source`.
        labels: CSV file that names the classes of each image; None: its folder is its class.
        in_sequences: each folder of a split is one sample, its images are the frames.
        untrained: there may be no split `train`.
        workers: processes.
        reporter: shows progress.

    Raises:
        UsageError: it is not laid out so.
    """
    if labels is not None and in_sequences:
        raise UsageError("--labels and --sequences: a sequence has no labels")
    if ilsvrc.is_here(source):
        return ilsvrc.listing(source, workers, reporter)
    listing.refuse_within(source, out)
    if labels is not None or in_sequences:
        found = (
            sequences.listing(source, reporter) if labels is None
            else labelled.listing(source, labels, reporter)
        )
        if "train" not in found.splits and not untrained:
            raise listing.no_train(source, found.splits)
        return found
    return listing.of_folder(source, workers, reporter, untrained=untrained)
