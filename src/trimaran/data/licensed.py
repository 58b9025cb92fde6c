"""Data sets that need a licence: the files that their users got are checked and listed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from trimaran import pool
from trimaran.data.contracts import Licensed
from trimaran.data.packing.listing import Listing
from trimaran.errors import RunError
from trimaran.files import md5
from trimaran.reporting import Advance, Reporter


def checked(
    contract: Licensed, source: Path | None, unpacked: Path, reporter: Reporter
) -> Listing:
    """Return what is in the files in `source`, after comparing them with the contract.

    `unpacked` is a folder for what cannot be read where it is.

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
    names = contract.needed(source)
    missing = [name for name in names if not (source / name).is_file()]
    if missing:
        raise RunError(f"{source} lacks {', '.join(missing)}", hint=explained)
    _check(contract, source, names, reporter)
    listing = contract.listing(source, unpacked, reporter)
    for split, wanted in contract.splits.items():
        found = len(listing.splits.get(split, ()))
        if wanted.samples is not None and found != wanted.samples:
            raise RunError(f"{source}: split {split} has {found:,} samples, not {wanted.samples:,}")
    return listing


def _check(contract: Licensed, source: Path, names: Collection[str], reporter: Reporter) -> None:
    """Compare the MD5 of those files with the publisher's, where it gives one."""
    tasks = [source / name for name in names if contract.files[name].md5]
    if not tasks:
        return
    workers = min(len(tasks), pool.cores())
    total = sum(path.stat().st_size for path in tasks)
    with reporter.bar(f"verifying the files of {contract.name}", total, unit="B") as advance:
        found = dict(pool.run(_with_md5, tasks, workers, advance))
    wrong = [
        f"{path} has the MD5 {found[path]}, the publisher's is {contract.files[path.name].md5}"
        for path in tasks
        if found[path] != contract.files[path.name].md5
    ]
    if wrong:
        raise RunError("\n".join(wrong), hint="download it again; the transfer was damaged")


def _with_md5(path: Path, advance: Advance) -> tuple[Path, str]:
    return path, md5(path, advance)
