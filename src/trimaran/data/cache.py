"""Data sets in the cache: got (downloaded, verified, packed), verified again, described.

A data set lies in `cache("data", NAME)`: `raw/` holds the verified files of the
contract, `packed/` the shards for training, `download/` what is under way. One that needs
a licence has no `raw/`: its files stay where the user put them; `replaced/` is its packed
set with a fault, while a new one is made; `unpacked/` has what a packing needs from archives.
In another format than the contract's own it lies beside them (`places.Place`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from shards.description import DATASET, Dataset
from shards.kinds import FormatName, SampleWord
from trimaran import locks
from trimaran.data import dataset_json, squashfs
from trimaran.data.contracts import AnyContract, Contract, Licensed, OfArrays, OfFiles
from trimaran.data.places import Place, getting
from trimaran.errors import RunError, UsageError
from trimaran.files import IN_CACHE, make_folder, resumable, sha256, writing
from trimaran.reporting import Reporter

State = Literal["absent", "downloaded", "packed", "damaged"]


def folder(contract: AnyContract, form: FormatName | None = None) -> Path:
    """Return where the packed data set lies, whether or not it is there.

    `form` is its format; None: the contract's own.
    """
    return Place.of(contract, form).packed


def formats_here(contract: AnyContract) -> list[FormatName]:
    """Return the formats in which the data set is here, by sizes; the contract's own first."""
    return [place.form for place in Place.every(contract) if _is_complete(place)]


def damaged(contract: AnyContract) -> list[FormatName]:
    """Return the formats in which `verify` has found a fault that was not mended since."""
    return [place.form for place in Place.every(contract) if os.path.lexists(place.damaged)]


def state(contract: AnyContract) -> State:
    """Return how much of the data set is here, by sizes and by what `verify` has found."""
    here = formats_here(contract)
    if here:
        return "damaged" if set(here) & set(damaged(contract)) else "packed"
    raw = Place.of(contract, None).home / "raw"
    present = isinstance(contract, Contract) and all(
        (raw / name).is_file() and (raw / name).stat().st_size == content.size
        for name, content in contract.files.items()
    )
    return "downloaded" if present else "absent"


def get(
    contract: AnyContract, *, offline: bool, reporter: Reporter, source: Path | None = None,
    form: FormatName | None = None,
) -> Path:
    """Return the folder of the packed data set, every shard verified by its hash.

    What is lacking or damaged is downloaded, verified and packed; `source` is the folder with the
    files of a data set that needs a licence, `form` a format (None: the contract's own).

    Raises:
        UsageError: `source` is given for a data set that is downloaded, or the format cannot hold
            such samples.
        RunError: no source gives the data, or there is no space for them.
        Interrupted: on Ctrl-C; downloads resume, and nothing half-packed stays.
    """
    if source is not None and isinstance(contract, Contract):
        raise UsageError(
            f"{contract.name} is downloaded, --from is for what needs a licence",
            hint="leave out --from",
        )
    place = Place.of(contract, form)
    if form not in (None, contract.own_format):
        dataset_json.check_format(place.form, contract.kind)
    with (
        resumable(f"getting {contract.name}"),
        writing(f"write into {place.home}", place.home, hint=IN_CACHE),
    ):
        again = any(map(os.path.lexists, (place.damaged, place.replaced)))
        if again or _faults(place, reporter):
            make_folder(place.home, reporter)
            # One lock for all formats: they are made of the same downloads.
            with locks.making(folder(contract), reporter):
                _mend(place, offline, reporter, source)
    return place.packed


def _mend(place: Place, offline: bool, reporter: Reporter, source: Path | None) -> None:
    """Get what is lacking or has a fault: another process may have done so meanwhile."""
    thorough = os.path.lexists(place.damaged)
    faults = _faults(place, reporter, records=thorough)
    if faults:
        if os.path.lexists(place.packed):
            for fault in faults:
                reporter.warn(fault)
        _get(place, offline, reporter, source)
    elif thorough and not _mend_raw(place, offline, reporter):
        return
    for done in (place.replaced, place.damaged):
        if os.path.lexists(done):
            shutil.rmtree(done) if done.is_dir() else done.unlink()


def _mend_raw(place: Place, offline: bool, reporter: Reporter) -> bool:
    """Get the files anew that the packed data set was made of; a run does not need them."""
    from trimaran.data.sources import fetch_raw

    contract, home = place.contract, place.home
    if isinstance(contract, Licensed) or not _raw_faults(contract, home / "raw"):
        return True
    try:
        fetch_raw(contract, home / "raw", home / "download", offline=offline, reporter=reporter)
    except RunError as error:
        reporter.warn(f"{error.message}\n{place.packed}, which a run reads, is whole")
        return False
    shutil.rmtree(home / "download", ignore_errors=True)
    return True


def _get(place: Place, offline: bool, reporter: Reporter, source: Path | None) -> None:
    # Needed here only, and slow to import (Pillow, requests).
    from trimaran import pool
    from trimaran.data import licensed
    from trimaran.data.packing import arrays, packer, plan
    from trimaran.data.sources import fetch_raw

    contract, home = place.contract, place.home
    raw, downloads, unpacked = home / "raw", home / "download", home / "unpacked"
    if not isinstance(contract, Licensed):
        fetch_raw(contract, raw, downloads, offline=offline, reporter=reporter)
    if isinstance(contract, OfFiles):
        if isinstance(contract, Licensed):
            listing = licensed.checked(contract, source, unpacked, reporter)
        else:
            listing = contract.listing(raw, unpacked, reporter)
        _set_aside(place, reporter)
        how = contract.packing
        options = plan.Options(contract.name, place.form, how.resize, how.quality)
        packer.pack(listing, place.packed, options, workers=pool.cores(), skip_bad=False,
                    reporter=reporter)
    elif isinstance(contract, OfArrays):
        arrays.pack(contract, raw, place.packed, reporter, place.form)
    for used in (downloads, unpacked):
        shutil.rmtree(used, ignore_errors=True)


def _set_aside(place: Place, reporter: Reporter) -> None:
    """Make room for packing anew, or for going on with it; the old set stays until the end."""
    from trimaran.data.packing import packer

    if os.path.lexists(place.packed) and not packer.is_under_way(place.packed):
        shutil.rmtree(place.replaced, ignore_errors=True)
        place.packed.rename(place.replaced)
        reporter.note(
            f"{place.contract.name} is packed anew; until then {place.replaced} is kept"
        )


def verify(contract: AnyContract, *, reporter: Reporter, workers: int | None = None) -> list[str]:
    """Check every file, record and image of the data set; return each fault found by name.

    Every format that is here is checked. What is found is remembered: the next `get` makes the
    packed data anew.
    """
    here = [place for place in Place.every(contract)
            if (place.packed / DATASET).is_file()]
    if not here:
        return [f"{contract.name} is not here ({folder(contract)})"]
    raw = here[0].home / "raw"
    common = _raw_faults(contract, raw) if isinstance(contract, Contract) else []
    found = list(common)
    for place in here:
        own = verify_folder(
            contract, place.packed, records=True, reporter=reporter, workers=workers
        )
        found += own
        if common or own:
            _remember(place, [*common, *own], reporter)
    return found


def _remember(place: Place, faults: list[str], reporter: Reporter) -> None:
    try:
        place.damaged.write_text("\n".join(faults) + "\n", encoding="utf-8")
    except OSError as error:
        reporter.warn(f"{place.damaged} cannot be written, so that `data get` does not see"
                      f" the faults: {error.strerror}")


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
        own += _unpinned(contract, dataset, sha256(place / DATASET))
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
        faults = dataset.wrong_sizes(place, inside.sizes)
    else:
        dataset = dataset_json.read(place)
        digest = sha256(place / DATASET)
        faults = dataset.missing_files(place)
    faults = [*dataset_json.mismatches(contract, dataset, samples),
              *_unpinned(contract, dataset, digest), *faults]
    hint = f"`{getting(contract, form)}` makes it"
    if dataset.kind.word not in kinds:
        faults.append(f"its samples are '{dataset.kind.word}', the app reads {', '.join(kinds)}")
    if dataset.format != form:
        faults.insert(0, f"its format is {dataset.format}, the recipe needs {form}")
        hint += (
            f" in the cache, where a run takes it without --data; `trimaran data pack SOURCE -o"
            f" PACKED --format {form}` makes it of a source of your own, `--data PACKED` takes it"
        )
    if faults:
        raise RunError(
            "\n".join([f"{place} is not the data set that is needed:", *faults]), hint=hint
        )
    return digest


def is_image(place: Path) -> bool:
    """Return True if `place` is a file, and so a SquashFS image of a packed data set."""
    return place.is_file()


def _unpinned(contract: AnyContract, dataset: Dataset, digest: str) -> list[str]:
    """Return what `dataset_json.unpinned` does; of another format nothing is pinned."""
    if dataset.format != contract.own_format:
        return []
    return dataset_json.unpinned(contract, digest)


def _is_complete(place: Place) -> bool:
    """Return True if the packed data set is here, by sizes, and made from these contents."""
    try:
        dataset = dataset_json.read(place.packed)
    except UsageError:
        return False
    return (
        dataset.format == place.form
        and _is_made_from(place.contract, dataset)
        and not dataset_json.mismatches(place.contract, dataset, {})
        and not dataset.missing_files(place.packed)
    )


def _faults(place: Place, reporter: Reporter, *, records: bool = False) -> list[str]:
    """Return the faults of the packed data set in the cache, whose every shard is hashed."""
    if not os.path.lexists(place.packed):
        return [f"{place.packed} is missing"]
    try:
        dataset = dataset_json.read(place.packed)
    except UsageError as error:
        return error.message.splitlines()
    if not _is_made_from(place.contract, dataset):
        return [f"{place.packed} was made from other files than {place.contract.name} has now"]
    if dataset.format != place.form:
        return [f"{place.packed} is in the format {dataset.format}, not {place.form}"]
    return verify_folder(place.contract, place.packed, records=records, reporter=reporter)


def _is_made_from(contract: AnyContract, dataset: Dataset) -> bool:
    contents = (
        {name: content.sha256 for name, content in contract.files.items()}
        if isinstance(contract, Contract) else {}
    )
    return dataset.origin is not None and dataset.origin.contents == contents
