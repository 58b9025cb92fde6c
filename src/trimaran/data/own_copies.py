"""Take the files of a data contract from the user's copy (`--from`) instead of downloading them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimaran.data import archives
from trimaran.data.archives import SourceError
from trimaran.data.contracts import Archive, Obtainable, Source, UrlSource
from trimaran.data.sources import missing, set_damaged_aside
from trimaran.errors import RunError, UsageError, unreadable
from trimaran.files import SPARE_BYTES, check_space, make_folder, sha256
from trimaran.reporting import Reporter

AGAIN = ("copy it again, or remove it if the folder has another copy; without --from, the data set"
         " is downloaded")
"""Hint for the user if a file of the user's copy differs from the published file."""

CONTRACT = ("the archive is the published one, so the data contract is wrong: correct its"
            " `members`, `folder` or `files`, or report the fault")
"""Hint for the user if an archive has the right SHA-256, but lacks the files of the contract."""


def exists(given: Path) -> bool:
    """Return whether the user's copy `given` exists.

    Raises:
        UsageError: the path cannot be accessed, for example because it is too long.
    """
    with _examining(given):
        return given.exists()


def absent(given: Path) -> UsageError:
    """Return the error to raise if the user's copy does not exist."""
    return UsageError(f"--from: {given} does not exist", code="file-missing",
                      hint="correct the path; without --from, a data set that needs no licence is"
                      " downloaded")


def take(contract: Obtainable, given: Path, raw: Path, reporter: Reporter) -> None:
    """Unpack the missing files of `contract` from the user's copy into the folder `raw`.

    Args:
        contract: the data set.
        given: the user's copy: a published archive, or a folder that contains the published
            files, a published archive, or the unpacked members of an archive.
        raw: folder of the unpacked files.
        reporter: gets a warning for each damaged file in `raw`.

    Raises:
        RunError: the copy is incomplete, or differs from the contract.
    """
    make_folder(raw, reporter)
    lacking = missing(contract, raw)
    set_damaged_aside(raw, lacking, reporter)
    size = sum(contract.files[name].size for name in lacking)
    check_space(raw, size + SPARE_BYTES, f"unpacking {contract.name}", RunError)
    for source in contract.sources:
        needed = [name for name in lacking if name in source.gives]
        archive = _archive(source, given)
        if needed and archive is not None:
            assert isinstance(source, Archive)  # noqa: S101 - for the types
            _check_hash(archive, source)
            reporter.note(f"unpacking {archive}")
            with _hinting(CONTRACT):
                archives.take(source, archive, contract, needed, raw)
        else:
            for name in needed:
                _take_file(source, name, given, contract, raw)
        lacking = [name for name in lacking if not (raw / name).exists()]
    if lacking:
        raise RunError(
            f"{given} lacks {', '.join(lacking)} of {contract.name}", code="file-missing",
            hint=f"it must contain one of these: {'; '.join(_ways(contract))}",
        )


def _archive(source: Source, given: Path) -> Path | None:
    """Return the path of the archive of `source` in the user's copy.

    Return None if the copy has no such file, or if the source is not an archive.
    """
    if not isinstance(source, Archive):
        return None
    name = Path(source.path).name
    path = given if given.name == name else given / name
    with _examining(path):
        return path if path.is_file() else None


def _check_hash(archive: Path, source: Archive) -> None:
    """Raise RunError if the SHA-256 of `archive` differs from the SHA-256 in the contract."""
    try:
        found = sha256(archive)
    except OSError as error:
        raise unreadable(archive, error, RunError) from error
    if found != source.sha256:
        raise RunError(f"{archive} has the SHA-256 {found}, published is {source.sha256}",
                       code="checksum-mismatch", hint=AGAIN)


def _take_file(source: Source, name: str, given: Path, contract: Obtainable, raw: Path) -> None:
    """Unpack the file `name` into `raw`, if the user's folder contains it.

    The user's folder may contain the published file, or the unpacked member of an archive.
    """
    for path in _places(source, name, given):
        with _examining(path):
            stream = _OwnFile(path) if path.is_file() else None
        if stream is not None:
            with stream, _hinting(AGAIN):
                archives.unpack(stream, str(path), raw / name, contract.files[name],
                                pickled=archives.is_pickled(source), own=True)
            return


class _OwnFile(io.BufferedReader):
    """An opened file of the user's copy; if reading fails, the error names this file.

    Without this class, a failed read would be reported as a failed write into the cache.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.path = path

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes as `io.BufferedReader` does, but convert errors.

        Raises:
            RunError: the file cannot be read.
        """
        try:
            return super().read(-1 if size is None else size)
        except OSError as error:
            raise unreadable(self.path, error, RunError) from error


@contextmanager
def _examining(path: Path) -> Iterator[None]:
    """Run the `with` block, which accesses the user's copy; convert an OSError to a UsageError."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from error


@contextmanager
def _hinting(hint: str) -> Iterator[None]:
    """Run the `with` block; if it raises SourceError, add `hint` to the error."""
    try:
        yield
    except SourceError as error:
        raise SourceError(error.message, code=error.code, hint=hint) from error


def _places(source: Source, name: str, given: Path) -> Iterator[Path]:
    """Yield the paths below `given`, the user's folder, at which the file `name` may be found."""
    if isinstance(source, UrlSource):
        yield given / Path(source.files[name].path).name
    else:
        member = source.members[name]
        yield given / Path(source.folder).name / member
        yield given / member


def _ways(contract: Obtainable) -> Iterator[str]:
    """Yield one text for each source, which lists the files that the user's copy must contain."""
    for source in contract.sources:
        if isinstance(source, UrlSource):
            yield ", ".join(Path(sent.path).name for sent in source.files.values())
        else:
            yield f"{Path(source.path).name}, or the unpacked folder {Path(source.folder).name}"
