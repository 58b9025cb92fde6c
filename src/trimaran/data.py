"""Data sets in the cache: got (downloaded, verified, packed), verified again, described.

A data set lies in `cache("data", NAME)`: `raw/` holds the verified files of the
contract, `packed/` the shards for training, `download/` what is under way.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from trimaran import packed, paths
from trimaran.contracts import Contract as Contract
from trimaran.contracts import load as load
from trimaran.contracts import names as names
from trimaran.errors import Interrupted, RunError, UsageError
from trimaran.reporting import Reporter

State = Literal["absent", "downloaded", "packed"]

_DAMAGED = ".damaged"
"""Left by `verify` when it found something, so that the next `get` repairs it."""


def folder(contract: Contract) -> Path:
    """Return where the packed data set lies, whether or not it is there."""
    return _home(contract) / "packed"


def state(contract: Contract) -> State:
    """Return how much of the data set is here, judged by sizes (see `verify` for hashes)."""
    if _is_complete(contract):
        return "packed"
    raw = _home(contract) / "raw"
    present = all(
        (raw / name).is_file() and (raw / name).stat().st_size == content.size
        for name, content in contract.files.items()
    )
    return "downloaded" if present else "absent"


def size(contract: Contract) -> int:
    """Return the bytes that the data set takes in the cache."""
    home = _home(contract)
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())


def get(contract: Contract, *, offline: bool, reporter: Reporter) -> Path:
    """Return the folder of the packed data set; download, verify and pack what is lacking.

    Raises:
        RunError: no source gives the data, or there is no space for them.
        Interrupted: on Ctrl-C; downloads resume, and nothing half-packed stays.
    """
    if _is_complete(contract):
        return folder(contract)
    home = _home(contract)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone(home, contract, reporter):
            # Another process may have got it while this one waited.
            if not _is_complete(contract):
                _get(contract, home, offline, reporter)
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped while getting {contract.name}", hint="run it again to go on"
        ) from None
    except OSError as error:
        raise RunError(f"cannot write into {home}: {error.strerror or error}") from error
    return folder(contract)


def _get(contract: Contract, home: Path, offline: bool, reporter: Reporter) -> None:
    # Needed here only, and slow to import (Pillow, requests).
    from trimaran.pack import pack
    from trimaran.sources import fetch_raw

    raw, downloads = home / "raw", home / "download"
    fetch_raw(contract, raw, downloads, offline=offline, reporter=reporter)
    pack(contract, raw, folder(contract), reporter)
    shutil.rmtree(downloads, ignore_errors=True)
    (home / _DAMAGED).unlink(missing_ok=True)


def verify(contract: Contract, *, reporter: Reporter) -> list[str]:
    """Hash every file of the data set again; return each fault found, naming its file.

    What is found is remembered: the next `get` makes the packed data anew.
    """
    home = _home(contract)
    if not (folder(contract) / packed.DATASET).is_file():
        return [f"{contract.name} is not here ({folder(contract)})"]
    faults = []
    for name, content in contract.files.items():
        path = home / "raw" / name
        if not path.is_file():
            faults.append(f"{path} is missing")
        elif not content.is_in(path):
            faults.append(f"{path} is damaged: its content is not that of the contract")
    faults += verify_folder(contract, folder(contract), reporter=reporter)
    if faults:
        (home / _DAMAGED).write_text("\n".join(faults) + "\n", encoding="utf-8")
    return faults


def verify_folder(contract: Contract, place: Path, *, reporter: Reporter) -> list[str]:
    """Hash the shards of the packed data set at `place`; return each fault found."""
    try:
        dataset = packed.read(place)
    except UsageError as error:
        return error.message.splitlines()
    return [
        *(f"{place}: {fault}" for fault in packed.mismatches(contract, dataset, {})),
        *packed.missing_files(place, dataset),
        *packed.damaged_files(place, dataset, reporter),
    ]


def check(contract: Contract, place: Path, samples: Mapping[str, int]) -> None:
    """Check quickly, without hashing, that `place` holds what a run needs.

    Args:
        contract: the data set that is needed.
        place: a folder of the user, or the one in the cache.
        samples: how many samples each split must have, by the recipe.

    Raises:
        RunError: it holds something else, or less; every fault is named.
        UsageError: there is no packed data set.
    """
    dataset = packed.read(place)
    faults = [
        *packed.mismatches(contract, dataset, samples),
        *packed.missing_files(place, dataset),
    ]
    if faults:
        raise RunError(
            "\n".join([f"{place} is not the data set that is needed:", *faults]),
            hint=f"`trimaran data get {contract.name}` makes it",
        )


def _home(contract: Contract) -> Path:
    return paths.cache("data", contract.name)


def _is_complete(contract: Contract) -> bool:
    """Return True if the packed data set is here, by sizes, and made from these contents."""
    place = folder(contract)
    if (_home(contract) / _DAMAGED).exists() or not (place / packed.DATASET).is_file():
        return False
    try:
        dataset = packed.read(place)
    except UsageError:
        return False
    contents = {name: content.sha256 for name, content in contract.files.items()}
    return (
        dataset.origin is not None
        and dataset.origin.contents == contents
        and not packed.mismatches(contract, dataset, {})
        and not packed.missing_files(place, dataset)
    )


@contextmanager
def _alone(home: Path, contract: Contract, reporter: Reporter) -> Iterator[None]:
    """Let one process at a time work in `home`."""
    with (home / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reporter.note(f"{contract.name}: another process is getting it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: every step is a rename, the last one wins
        yield
