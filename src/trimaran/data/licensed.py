"""Data sets that need a licence: the files that their users got are checked and packed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trimaran import pool
from trimaran.data.contracts import Licensed
from trimaran.data.packing import ilsvrc, packer
from trimaran.data.packing.listing import Listing
from trimaran.data.packing.plan import Options
from trimaran.errors import RunError
from trimaran.reporting import Advance, Reporter

_BLOCK = 1 << 22


def checked(contract: Licensed, source: Path | None, reporter: Reporter) -> Listing:
    """Return what is in the files in `source`, after comparing them with the contract.

    Raises:
        RunError: there is no `source` (the way to get the files is explained), or a file
            is missing, damaged or not what the publisher describes.
    """
    explained = contract.instructions.rstrip()
    if source is None:
        raise RunError(
            f"{contract.name} cannot be downloaded for you: {contract.licence.holder} gives it"
            f" to those who agree to its terms ({contract.licence.url})", hint=explained,
        )
    missing = [name for name in contract.files if not (source / name).is_file()]
    if missing:
        raise RunError(f"{source} lacks {', '.join(missing)}", hint=explained)
    _check(contract, source, reporter)
    listing = ilsvrc.listing(source, pool.cores(), reporter)
    for split, wanted in contract.splits.items():
        if (found := len(listing.splits[split])) != wanted.samples:
            raise RunError(f"{source}: split {split} has {found:,} images, not {wanted.samples:,}")
    return listing


def pack(contract: Licensed, listing: Listing, folder: Path, reporter: Reporter) -> None:
    """Pack what `checked` returned into `folder` as the contract says, or go on with it."""
    how = contract.packing
    packer.pack(
        listing, folder, Options(contract.name, how.format, how.resize, how.quality),
        workers=pool.cores(), skip_bad=False, reporter=reporter,
    )


def _check(contract: Licensed, source: Path, reporter: Reporter) -> None:
    """Compare the MD5 of every file with the publisher's."""
    tasks = [source / name for name in contract.files]
    workers = min(len(tasks), pool.cores())
    total = sum(path.stat().st_size for path in tasks)
    with reporter.bar(f"verifying the files of {contract.name}", total, unit="B") as advance:
        found = dict(pool.run(md5, tasks, workers, advance))
    wrong = [
        f"{path} has the MD5 {found[path]}, the publisher's is {contract.files[path.name].md5}"
        for path in tasks
        if found[path] != contract.files[path.name].md5
    ]
    if wrong:
        raise RunError("\n".join(wrong), hint="download it again; the transfer was damaged")


def md5(path: Path, advance: Advance) -> tuple[Path, str]:
    """Return `path` and the MD5 of its content, in hexadecimal."""
    digest = hashlib.md5(usedforsecurity=False)  # all that the publisher gives
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            advance(len(block))
    return path, digest.hexdigest()
