"""Data sets in the cache: got (downloaded, verified, packed), verified again, described.

A data set lies in `cache("data", NAME)`: `raw/` holds the verified files of the
contract, `packed/` the shards for training, `download/` what is under way. One that needs
a licence has no `raw/`: its files stay where the user put them; `replaced/` is its packed
set with a fault, while a new one is made; `unpacked/` has what a packing needs from archives.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from trimaran import locks, paths
from trimaran.data import dataset_json, squashfs
from trimaran.data.contracts import AnyContract, Contract, Licensed, OfFiles, Videos, Zipped
from trimaran.data.kinds import FormatName, SampleWord
from trimaran.errors import RunError, UsageError
from trimaran.files import IN_CACHE, make_folder, resumable, sha256, writing
from trimaran.reporting import Reporter

State = Literal["absent", "downloaded", "packed", "damaged"]

_DAMAGED = ".damaged"
"""Left by `verify` when it found something, so that the next `get` looks as thoroughly."""

_REPLACED = "replaced"
"""The packed set with a fault, kept until the new one is whole."""


def folder(contract: AnyContract) -> Path:
    """Return where the packed data set lies, whether or not it is there."""
    return _home(contract) / "packed"


def state(contract: AnyContract) -> State:
    """Return how much of the data set is here, by sizes and by what `verify` has found."""
    if _is_complete(contract):
        return "damaged" if os.path.lexists(_home(contract) / _DAMAGED) else "packed"
    raw = _home(contract) / "raw"
    present = isinstance(contract, Contract) and all(
        (raw / name).is_file() and (raw / name).stat().st_size == content.size
        for name, content in contract.files.items()
    )
    return "downloaded" if present else "absent"


def get(
    contract: AnyContract, *, offline: bool, reporter: Reporter, source: Path | None = None
) -> Path:
    """Return the folder of the packed data set, every shard verified by its hash.

    What is lacking or damaged is downloaded, verified and packed; `source` is the folder with the
    files of a data set that needs a licence.

    Raises:
        UsageError: `source` is given for a data set that is downloaded.
        RunError: no source gives the data, or there is no space for them.
        Interrupted: on Ctrl-C; downloads resume, and nothing half-packed stays.
    """
    if source is not None and isinstance(contract, Contract):
        raise UsageError(
            f"{contract.name} is downloaded, --from is for what needs a licence",
            hint="leave out --from",
        )
    home = _home(contract)
    with (
        resumable(f"getting {contract.name}"), writing(f"write into {home}", home, hint=IN_CACHE)
    ):
        again = any(os.path.lexists(home / name) for name in (_DAMAGED, _REPLACED))
        if again or _faults(contract, reporter):
            make_folder(home, reporter)
            with locks.making(folder(contract), reporter):
                _mend(contract, home, offline, reporter, source)
    return folder(contract)


def _mend(
    contract: AnyContract, home: Path, offline: bool, reporter: Reporter, source: Path | None
) -> None:
    """Get what is lacking or has a fault: another process may have done so meanwhile."""
    thorough = os.path.lexists(home / _DAMAGED)
    faults = _faults(contract, reporter, records=thorough)
    if faults:
        if os.path.lexists(folder(contract)):
            for fault in faults:
                reporter.warn(fault)
        _get(contract, home, offline, reporter, source)
    elif thorough and not _mend_raw(contract, home, offline, reporter):
        return
    for done in (home / _REPLACED, home / _DAMAGED):
        if os.path.lexists(done):
            shutil.rmtree(done) if done.is_dir() else done.unlink()


def _mend_raw(contract: AnyContract, home: Path, offline: bool, reporter: Reporter) -> bool:
    """Get the files anew that the packed data set was made of; a run does not need them."""
    from trimaran.data.sources import fetch_raw

    if isinstance(contract, Licensed) or not _raw_faults(contract, home / "raw"):
        return True
    try:
        fetch_raw(contract, home / "raw", home / "download", offline=offline, reporter=reporter)
    except RunError as error:
        reporter.warn(f"{error.message}\n{folder(contract)}, which a run reads, is whole")
        return False
    shutil.rmtree(home / "download", ignore_errors=True)
    return True


def _get(
    contract: AnyContract, home: Path, offline: bool, reporter: Reporter, source: Path | None
) -> None:
    # Needed here only, and slow to import (Pillow, requests).
    from trimaran import pool
    from trimaran.data import licensed
    from trimaran.data.packing import arrays, cameras, packer, plan, zipped
    from trimaran.data.sources import fetch_raw

    raw, downloads, unpacked = home / "raw", home / "download", home / "unpacked"
    if not isinstance(contract, Licensed):
        fetch_raw(contract, raw, downloads, offline=offline, reporter=reporter)
    if isinstance(contract, OfFiles):
        if isinstance(contract, Videos):
            listing = cameras.listing(contract, raw)
        elif isinstance(contract, Zipped):
            listing = zipped.listing(contract, raw)
        else:
            listing = licensed.checked(contract, source, unpacked, reporter)
        _set_aside(contract, home, reporter)
        how = contract.packing
        options = plan.Options(contract.name, how.format, how.resize, how.quality)
        packer.pack(listing, folder(contract), options, workers=pool.cores(), skip_bad=False,
                    reporter=reporter)
    else:
        arrays.pack(contract, raw, folder(contract), reporter)
    for used in (downloads, unpacked):
        shutil.rmtree(used, ignore_errors=True)


def _set_aside(contract: OfFiles, home: Path, reporter: Reporter) -> None:
    """Make room for packing anew, or for going on with it; the old set stays until the end."""
    from trimaran.data.packing import packer

    place = folder(contract)
    if os.path.lexists(place) and not packer.is_under_way(place):
        shutil.rmtree(home / _REPLACED, ignore_errors=True)
        place.rename(home / _REPLACED)
        reporter.note(f"{contract.name} is packed anew; until then {home / _REPLACED} is kept")


def verify(contract: AnyContract, *, reporter: Reporter, workers: int | None = None) -> list[str]:
    """Check every file, record and image of the data set; return each fault found by name.

    What is found is remembered: the next `get` makes the packed data anew.
    """
    home = _home(contract)
    if not (folder(contract) / dataset_json.DATASET).is_file():
        return [f"{contract.name} is not here ({folder(contract)})"]
    faults = _raw_faults(contract, home / "raw") if isinstance(contract, Contract) else []
    faults += verify_folder(
        contract, folder(contract), records=True, reporter=reporter, workers=workers
    )
    if faults:
        try:
            (home / _DAMAGED).write_text("\n".join(faults) + "\n", encoding="utf-8")
        except OSError as error:
            reporter.warn(f"{home / _DAMAGED} cannot be written, so that `data get` does not see"
                          f" the faults: {error.strerror}")
    return faults


def _raw_faults(contract: Contract, raw: Path) -> list[str]:
    faults = []
    for name, content in contract.files.items():
        path = raw / name
        try:
            if not path.is_file():
                faults.append(f"{path} is missing")
            elif not content.is_in(path):
                faults.append(f"{path} is damaged: its content is not that of the contract")
        except OSError as error:
            faults.append(f"{path} cannot be read: {error.strerror}")
    return faults


def verify_folder(
    contract: AnyContract | None, place: Path, *, records: bool, reporter: Reporter,
    workers: int | None = None,
) -> list[str]:
    """Hash the shards of the packed data set in the folder `place`; return each fault found.

    Args:
        contract: the data set that it must be (None: any).
        records: also read every record and decode every image.
        workers: processes (None: one for each core).
    """
    from trimaran import pool  # this and Pillow are slow to import
    from trimaran.data.packing import verification

    try:
        dataset = dataset_json.read(place)
    except UsageError as error:
        return error.message.splitlines()
    own: list[str] = []
    if contract is not None:
        own = dataset_json.mismatches(contract, dataset, {})
        own += dataset_json.unpinned(contract, sha256(place / dataset_json.DATASET))
    found = [f"{place}: {fault}" for fault in own] + verification.faults(
        place, dataset, records=records, workers=workers or pool.cores(), reporter=reporter
    )
    return list(dict.fromkeys(found))  # both add up the samples


def check(
    contract: AnyContract, place: Path, samples: Mapping[str, int], form: FormatName,
    kinds: Collection[SampleWord],
) -> str:
    """Check quickly, without hashing, that `place` holds what a run needs.

    It is a folder of the user, a SquashFS image of one, or the folder in the cache. The recipe
    says `samples`, by split, and `form`, the app which `kinds` it reads.

    Returns:
        The SHA-256 of `dataset.json`.

    Raises:
        RunError: it holds something else, or less; every fault is named.
        UsageError: there is no packed data set.
    """
    if is_image(place):
        inside = squashfs.look_into(place)
        dataset, digest = inside.dataset, inside.sha256
        faults = dataset_json.wrong_sizes(place, dataset, inside.sizes)
    else:
        dataset = dataset_json.read(place)
        digest = sha256(place / dataset_json.DATASET)
        faults = dataset_json.missing_files(place, dataset)
    faults = [*dataset_json.mismatches(contract, dataset, samples),
              *dataset_json.unpinned(contract, digest), *faults]
    hint = f"`trimaran data get {contract.name}` makes it"
    if dataset.kind.word not in kinds:
        faults.append(f"its samples are '{dataset.kind.word}', the app reads {', '.join(kinds)}")
    if dataset.format != form:
        faults.insert(0, f"its format is {dataset.format}, the recipe needs {form}")
        hint = (
            f"`trimaran data pack SOURCE -o PACKED --format {form}` makes it of the same source,"
            " `--data PACKED` takes it"
        )
    if faults:
        raise RunError(
            "\n".join([f"{place} is not the data set that is needed:", *faults]), hint=hint
        )
    return digest


def is_image(place: Path) -> bool:
    """Return True if `place` is a file, and so a SquashFS image of a packed data set."""
    return place.is_file()


def _home(contract: AnyContract) -> Path:
    return paths.cache("data", contract.name)


def _is_complete(contract: AnyContract) -> bool:
    """Return True if the packed data set is here, by sizes, and made from these contents."""
    place = folder(contract)
    try:
        dataset = dataset_json.read(place)
    except UsageError:
        return False
    return (
        _is_made_from(contract, dataset)
        and not dataset_json.mismatches(contract, dataset, {})
        and not dataset_json.missing_files(place, dataset)
    )


def _faults(contract: AnyContract, reporter: Reporter, *, records: bool = False) -> list[str]:
    """Return the faults of the packed data set in the cache, whose every shard is hashed."""
    place = folder(contract)
    if not os.path.lexists(place):
        return [f"{place} is missing"]
    try:
        if not _is_made_from(contract, dataset_json.read(place)):
            return [f"{place} was made from other files than {contract.name} has now"]
    except UsageError as error:
        return error.message.splitlines()
    return verify_folder(contract, place, records=records, reporter=reporter)


def _is_made_from(contract: AnyContract, dataset: dataset_json.Dataset) -> bool:
    contents = (
        {name: content.sha256 for name, content in contract.files.items()}
        if isinstance(contract, Contract) else {}
    )
    return dataset.origin is not None and dataset.origin.contents == contents
