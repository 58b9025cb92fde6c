"""Download, verify and pack data sets in the cache, and verify them again.

A data set has the folder `cache("data", NAME)`, which contains:

- `raw/`: the verified files of the contract. A data set that needs a licence has no `raw/`: its
  files stay where the user put them.
- `download/`: unfinished downloads.
- `unpacked/`: files that were unpacked from archives for the packing.
- `packed/`: the shards for training, in the format that the contract specifies. Shards in another
  format are in `packed-FORMAT/`.
- `replaced/`: a damaged packed data set, kept until its replacement is complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from shards.description import DATASET
from shards.kinds import FormatName, SampleWord
from trimaran import locks, paths
from trimaran.data import dataset_json, squashfs
from trimaran.data.contracts import (
    AnyContract,
    Contract,
    Licensed,
    LicensedFiles,
    OfArrays,
    OfFiles,
)
from trimaran.errors import RunError, UsageError
from trimaran.files import IN_CACHE, make_folder, resumable, sha256, writing
from trimaran.reporting import Reporter

if TYPE_CHECKING:
    from trimaran.data.packing.licensed_text import LicensedText
    from trimaran.data.packing.text_reader import DownloadedText

State = Literal["absent", "downloaded", "packed", "damaged"]


@dataclass(frozen=True)
class Place:
    """The folders in the cache that belong to one data set in one packed format."""

    contract: AnyContract
    form: FormatName

    @classmethod
    def of(cls, contract: AnyContract, form: FormatName | None) -> Place:
        """Return the `Place` of a data set in the format `form`.

        If `form` is None, the format in the contract is used.
        """
        return cls(contract, form or contract.own_format)

    @classmethod
    def every(cls, contract: AnyContract) -> list[Place]:
        """Return the `Place` of each packed format, beginning with the format in the contract."""
        forms: tuple[FormatName, ...] = get_args(FormatName)
        own = contract.own_format
        return [cls(contract, form) for form in sorted(forms, key=lambda form: form != own)]

    @property
    def home(self) -> Path:
        """The folder of the data set, common to all formats."""
        return paths.cache("data", self.contract.name)

    @property
    def packed(self) -> Path:
        """The folder of the shards; it need not exist."""
        return self.home / f"packed{self._suffix}"

    @property
    def damaged(self) -> Path:
        """The file in which `verify` lists the faults that it finds.

        If the file exists, the next `get` also checks every record.
        """
        return self.home / f".damaged{self._suffix}"

    @property
    def replaced(self) -> Path:
        """The folder of a damaged packed data set, kept until its replacement is complete."""
        return self.home / f"replaced{self._suffix}"

    @property
    def _suffix(self) -> str:
        return "" if self.form == self.contract.own_format else f"-{self.form}"


def getting(contract: AnyContract, form: FormatName) -> str:
    """Return the command that downloads and packs a data set in the format `form`.

    If the data set needs a licence, the command contains the placeholder DIR, which the user
    replaces with the path of the folder that contains the files of the data set.
    """
    words = ["trimaran data get", contract.name]
    words += [] if form == contract.own_format else ["--format", form]
    words += ["--from DIR"] if isinstance(contract, Licensed) else []
    return " ".join(words)


def folder(contract: AnyContract, form: FormatName | None = None) -> Path:
    """Return the folder of the packed data set in the format `form`, which need not exist.

    If `form` is None, the format in the contract is used.
    """
    return Place.of(contract, form).packed


def formats_here(contract: AnyContract) -> list[FormatName]:
    """Return the formats in which the cache has a complete data set, judged by file sizes.

    The format in the contract comes first.
    """
    return [place.form for place in Place.every(contract) if _is_complete(place)]


def damaged(contract: AnyContract) -> list[FormatName]:
    """Return the formats in which `verify` found a fault that is not yet repaired."""
    return [place.form for place in Place.every(contract) if os.path.lexists(place.damaged)]


def state(contract: AnyContract) -> State:
    """Return the state of the data set: absent, downloaded, packed or damaged.

    It is derived from the sizes of the files and the last result of `verify`.
    """
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
    """Verify the hash of every shard of the packed data set, and return the data set's folder.

    Missing or damaged files are downloaded, verified and packed.

    Args:
        contract: the data set.
        offline: forbid downloads.
        reporter: shows progress and warnings.
        source: the user's copy of the files: a folder or, for a data set that Trimaran can
            download, also the published archive.
        form: the format of the shards; None for the format in the contract.

    Raises:
        UsageError: the format cannot hold samples of this kind, or `source` does not exist.
        RunError: no source provides the data, or the disk has too little free space.
        Interrupted: the user pressed Ctrl-C; the next call resumes the downloads.
    """
    place = Place.of(contract, form)
    if form not in (None, contract.own_format):
        dataset_json.check_format(place.form, contract.kind)
    if source is not None:
        from trimaran.data import own_copies  # slow to import

        # If a data set needs a licence, its contract names the files that must be there.
        absent = not own_copies.exists(source)
        if absent and (isinstance(contract, Contract) or not _faults(place, reporter)):
            raise own_copies.absent(source)
    with (
        resumable(f"getting {contract.name}"),
        writing(f"write into {place.home}", place.home, hint=IN_CACHE),
    ):
        again = any(map(os.path.lexists, (place.damaged, place.replaced)))
        if again or _faults(place, reporter):
            make_folder(place.home, reporter)
            # All formats share one lock, because they are made from the same downloads.
            with locks.making(folder(contract), reporter):
                _mend(place, offline, reporter, source)
    return place.packed


def _mend(place: Place, offline: bool, reporter: Reporter, source: Path | None) -> None:
    """Check the data set again, and replace it if files are missing or damaged.

    The caller holds the lock of the data set. While this process waited for the lock, another
    process may have repaired the data set, so a second check is needed.
    """
    thorough = os.path.lexists(place.damaged)
    faults = _faults(place, reporter, records=thorough)
    if faults:
        if os.path.lexists(place.packed):
            for fault in faults:
                reporter.warn(fault)
        _get(place, offline, reporter, source)
    elif thorough and not _mend_raw(place, offline, reporter, source):
        return
    for done in (place.replaced, place.damaged):
        if os.path.lexists(done):
            shutil.rmtree(done) if done.is_dir() else done.unlink()


def _mend_raw(place: Place, offline: bool, reporter: Reporter, source: Path | None) -> bool:
    """Get damaged raw files again; return True if all raw files are intact afterwards.

    If the user has given a copy (`source`), the files are taken from it; otherwise they are
    downloaded. A failure only causes a warning, because a run does not read the raw files.
    """
    contract, home = place.contract, place.home
    if isinstance(contract, Licensed) or not _raw_faults(contract, home / "raw"):
        return True
    try:
        _get_raw(place, contract, offline, reporter, source)
    except RunError as error:
        reporter.warn(f"{error.message}\n{place.packed}, which a run reads, is complete")
        return False
    shutil.rmtree(home / "download", ignore_errors=True)
    return True


def _get_raw(
    place: Place, contract: Contract, offline: bool, reporter: Reporter, source: Path | None
) -> None:
    """Unpack the missing raw files from the user's copy `source`; download them if it is None."""
    # These modules are slow to import (requests).
    from trimaran.data import own_copies
    from trimaran.data.sources import fetch_raw

    raw = place.home / "raw"
    if source is not None:
        own_copies.take(contract, source, raw, reporter)
    else:
        fetch_raw(contract, raw, place.home / "download", offline=offline, reporter=reporter)


def _get(place: Place, offline: bool, reporter: Reporter, source: Path | None) -> None:
    # These modules are slow to import (Pillow).
    from trimaran.data.packing.licensed_text import LicensedText
    from trimaran.data.packing.text_reader import DownloadedText

    contract, home = place.contract, place.home
    raw, downloads, unpacked = home / "raw", home / "download", home / "unpacked"
    if isinstance(contract, Contract):
        _get_raw(place, contract, offline, reporter, source)
    if isinstance(contract, (DownloadedText, LicensedText)):
        folder = contract.verified(source, reporter) if isinstance(contract, Licensed) else raw
        _set_aside(place, reporter)
        _pack_text(contract, folder, place.packed, reporter)
    else:
        _pack_images(place, raw, unpacked, source, reporter)
    for used in (downloads, unpacked):
        shutil.rmtree(used, ignore_errors=True)


def _pack_images(
    place: Place, raw: Path, unpacked: Path, source: Path | None, reporter: Reporter
) -> None:
    """Pack images or sequences.

    Args:
        place: where the packed data set is written, and its format.
        raw: folder of the downloaded files.
        unpacked: a folder for files that must be unpacked before they are read.
        source: folder with the user's files; used if the data set needs a licence.
        reporter: shows progress and warnings.
    """
    from trimaran import pool
    from trimaran.data.packing import arrays, packer, plan

    contract, form = place.contract, place.form
    assert form != "tokens"  # noqa: S101 - `check_format` rejects it
    if isinstance(contract, OfFiles):
        if isinstance(contract, LicensedFiles):
            listing = contract.checked(source, unpacked, reporter)
        else:
            listing = contract.listing(raw, unpacked, reporter)
        _set_aside(place, reporter)
        how = contract.packing
        options = plan.Options(contract.name, form, how.resize, how.quality)
        packer.pack(listing, place.packed, options, workers=pool.cores(), skip_bad=False,
                    reporter=reporter)
    elif isinstance(contract, OfArrays):
        arrays.pack(contract, raw, place.packed, reporter, form)


def _pack_text(
    contract: DownloadedText | LicensedText, source: Path, folder: Path, reporter: Reporter
) -> None:
    """Pack the verified files of a text, which are in the folder `source`, into `folder`."""
    from trimaran.data.packing import text_packer

    contents: dict[str, str] = {}
    if isinstance(contract, Contract):
        contents = {name: content.sha256 for name, content in contract.files.items()}
    text_packer.pack(
        contract.text(source, contract.files, contents), folder,
        text_packer.Options(contract.name), contract.choice(source), skip_bad=False,
        reporter=reporter, wanted=contract.wanted,
    )


def _set_aside(place: Place, reporter: Reporter) -> None:
    """Rename the old packed data set, and keep it until the new data set is complete.

    An unfinished packing is not renamed, so that it can be resumed.
    """
    from trimaran.data.packing import unfinished

    if os.path.lexists(place.packed) and not unfinished.is_under_way(place.packed):
        shutil.rmtree(place.replaced, ignore_errors=True)
        place.packed.rename(place.replaced)
        reporter.note(
            f"{place.contract.name} is packed again; {place.replaced} is kept until the end"
        )


def verify(contract: AnyContract, *, reporter: Reporter, workers: int | None = None) -> list[str]:
    """Check every file, record and image of the data set, and return its faults.

    All existing formats are checked. The faults are also written to a file. If this file
    exists, the next `get` checks every record, and packs damaged data again.

    Returns:
        One line for each fault, which names the file.
    """
    here = [place for place in Place.every(contract)
            if (place.packed / DATASET).is_file()]
    if not here:
        return [f"{contract.name} is not in the cache ({folder(contract)})"]
    raw = here[0].home / "raw"
    common = _raw_faults(contract, raw) if isinstance(contract, Contract) else []
    found = list(common)
    for place in here:
        own = dataset_json.verify_folder(
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
        reporter.warn(f"{place.damaged} cannot be written: {error.strerror}; `data get` will not"
                      " repair the faults")


def _raw_faults(contract: Contract, raw: Path) -> list[str]:
    faults = []
    for name, content in contract.files.items():
        path = raw / name
        try:
            if not path.is_file():
                faults.append(f"{path} is missing")
            elif not content.is_in(path):
                faults.append(f"{path} is damaged: its SHA-256 is not the one in the contract")
        except OSError as error:
            faults.append(f"{path} cannot be read: {error.strerror}")
    return faults


def check(
    contract: AnyContract, place: Path, samples: Mapping[str, int], form: FormatName,
    kinds: Collection[SampleWord],
) -> str:
    """Check quickly, without hashing shards, that `place` contains the data that a run needs.

    Args:
        contract: the expected data set.
        place: a folder of the user, a SquashFS image of a folder, or the folder in the cache.
        samples: number of samples of each split, from the recipe.
        form: the format that the recipe requires.
        kinds: the kinds of samples that the app reads.

    Returns:
        The SHA-256 of `dataset.json`.

    Raises:
        RunError: the data set is incomplete or not the expected one; the message lists every fault.
        UsageError: `place` contains no packed data set.
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
              *dataset_json.unpinned(contract, dataset, digest), *faults]
    hint = f"run `{getting(contract, form)}`"
    if dataset.kind.word not in kinds:
        faults.append(f"its samples are '{dataset.kind.word}', the app reads {', '.join(kinds)}")
    if dataset.format != form:
        faults.insert(0, f"its format is {dataset.format}, the recipe needs {form}")
        hint += (
            f" and leave out --data; or pack your own source with `trimaran data pack SOURCE -o"
            f" PACKED --format {form}` and pass `--data PACKED`"
        )
    if faults:
        raise RunError(
            "\n".join([f"{place} is not the required data set:", *faults]),
            code="data-mismatch", hint=hint,
        )
    return digest


def is_image(place: Path) -> bool:
    """Return True if `place` is a file, that is, a SquashFS image and not a folder."""
    return place.is_file()


def _is_complete(place: Place) -> bool:
    """Return True if all shards have the right sizes and were made from the contract's files."""
    try:
        dataset = dataset_json.read(place.packed)
    except UsageError:
        return False
    return (
        dataset.format == place.form
        and dataset_json.is_made_from(place.contract, dataset)
        and not dataset_json.mismatches(place.contract, dataset, {})
        and not dataset.missing_files(place.packed)
    )


def _faults(place: Place, reporter: Reporter, *, records: bool = False) -> list[str]:
    """Return the faults of the packed data set in the cache, after hashing every shard."""
    if not os.path.lexists(place.packed):
        return [f"{place.packed} is missing"]
    try:
        dataset = dataset_json.read(place.packed)
    except UsageError as error:
        return error.message.splitlines()
    if not dataset_json.is_made_from(place.contract, dataset):
        return [f"{place.packed} was made from other files than those of {place.contract.name}"]
    if dataset.format != place.form:
        return [f"{place.packed} is in the format {dataset.format}, not {place.form}"]
    return dataset_json.verify_folder(
        place.contract, place.packed, records=records, reporter=reporter
    )
