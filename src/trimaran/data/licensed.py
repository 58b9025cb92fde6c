"""Check and list the files of a data set whose licence the user has to accept."""

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
    """List the samples of the files in `source`, after comparing the files with the contract.

    Args:
        contract: the data set.
        source: the folder with the user's files (None: not given).
        unpacked: a folder for files that must be unpacked before they are read.
        reporter: shows progress.

    Raises:
        RunError: `source` is None (the hint explains how to get the files), or a file is missing,
            damaged or has not the published checksum.
    """
    explained = contract.instructions.rstrip()
    if source is None:
        raise RunError(
            f"{contract.name} cannot be downloaded automatically: {contract.licence.holder}"
            f" requires that you accept its terms ({contract.licence.url})",
            code="licence-required", hint=explained,
        )
    names = contract.needed(source)
    missing = [name for name in names if not (source / name).is_file()]
    if missing:
        raise RunError(f"{source} lacks {', '.join(missing)}", code="file-missing", hint=explained)
    _check(contract, source, names, reporter)
    listing = contract.listing(source, unpacked, reporter)
    for split, wanted in contract.splits.items():
        found = len(listing.splits.get(split, ()))
        if wanted.samples is not None and found != wanted.samples:
            raise RunError(f"{source}: split {split} has {found:,} samples, not {wanted.samples:,}",
                           code="data-mismatch")
    return listing


def _check(contract: Licensed, source: Path, names: Collection[str], reporter: Reporter) -> None:
    """Compare the MD5 of the named files with the published MD5, where there is one."""
    tasks = [source / name for name in names if contract.files[name].md5]
    if not tasks:
        return
    workers = min(len(tasks), pool.cores())
    total = sum(path.stat().st_size for path in tasks)
    with reporter.bar(f"verifying the files of {contract.name}", total, unit="B") as advance:
        found = dict(pool.run(_with_md5, tasks, workers, advance))
    wrong = [
        f"{path} has the MD5 {found[path]}, published is {contract.files[path.name].md5}"
        for path in tasks
        if found[path] != contract.files[path.name].md5
    ]
    if wrong:
        raise RunError("\n".join(wrong), code="checksum-mismatch",
                       hint="download them again; the transfer was damaged")


def _with_md5(path: Path, advance: Advance) -> tuple[Path, str]:
    return path, md5(path, advance)
