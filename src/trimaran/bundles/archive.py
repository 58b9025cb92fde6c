"""Read and write the tar file of a bundle.

The first member of the tar file lists the hashes of all other members. Because the list comes
first, one pass through the file is enough to check every member. All members are in one folder.
The tar file is not compressed, because SIF files are compressed already.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from trimaran.errors import RunError, UsageError, unreadable
from trimaran.files import check_space, follow_umask, refusal
from trimaran.reporting import Advance, Reporter

SUMS = "SHA256SUMS"
BLOCK = 1 << 20
LARGEST_LIST = 16 << 20
"""Maximum size in bytes of the list of hashes, which is read into memory.

The size is sufficient for about 100,000 files.
"""

_PART = r"[A-Za-z0-9][A-Za-z0-9._+~-]*"
_LINE = re.compile(rf"([0-9a-f]{{64}})  ({_PART}(?:/{_PART})*)")
_AGAIN = "copy it again"
_OTHER = "give a file that `trimaran bundle` wrote"
_UNSAFE = "do not unpack it with another program; get the bundle again from where it was packed"


@dataclass(frozen=True)
class Member:
    """One file in the bundle.

    Attributes:
        name: path below the folder of the bundle.
        source: path of the file to copy, or the content as bytes.
        size: size in bytes.
        sha256: hash of the content.
        mtime: modification time in seconds since 1970.
        mode: permissions of the file.
    """

    name: str
    source: Path | bytes
    size: int
    sha256: str
    mtime: int
    mode: int = 0o644


def text_member(name: str, text: str, mtime: int, mode: int = 0o644) -> Member:
    """Return a member whose content is `text` in UTF-8."""
    content = text.encode()
    return Member(name, content, len(content), hashlib.sha256(content).hexdigest(), mtime, mode)


def check_new(file: Path) -> None:
    """Check that `file` does not exist and that its folder exists.

    Raises:
        UsageError: `file` exists, or its folder does not exist.
    """
    if file.exists():
        raise UsageError(f"{file} exists: a bundle is never overwritten", code="file-exists",
                         hint="choose another file, or remove this one")
    if not file.absolute().parent.is_dir():
        raise UsageError(
            f"{file}: the folder {file.absolute().parent} does not exist", code="file-missing",
            hint="make the folder first",
        )


def write(file: Path, folder: str, members: Sequence[Member], reporter: Reporter) -> str:
    """Write `members` below `folder` to the tar file `file`, and return the SHA-256 of `file`.

    The bundle is written to a temporary file, which is renamed to `file` when it is complete. The
    same members always result in the same bytes.

    Raises:
        UsageError: `file` exists.
        RunError: the disk space is too small, or a source changed while it was packed.
    """
    lines = "".join(f"{member.sha256}  {member.name}\n" for member in members)
    everything = [text_member(SUMS, lines, members[0].mtime), *members]
    total = sum(member.size + 2 * tarfile.BLOCKSIZE for member in everything)
    place = file.absolute().parent
    check_space(place, total + tarfile.RECORDSIZE, f"the bundle {file.name}", RunError)
    descriptor, name = tempfile.mkstemp(dir=place, prefix=f".{file.name}.")
    temporary = Path(name)
    try:
        with (
            os.fdopen(descriptor, "wb") as target,
            reporter.bar(f"packing {file.name}", total, unit="B") as advance,
        ):
            sink = _Hashed(target, advance)
            stream = cast("IO[bytes]", sink)  # tarfile only writes to it
            with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                for member in everything:
                    _add(tar, folder, member)
            target.flush()
            os.fsync(target.fileno())
        follow_umask(temporary)
        check_new(file)  # another process may have created it in the meantime
        temporary.replace(file)
    except OSError as error:
        raise RunError(
            f"cannot write {file}: {refusal(error, file)}", code="file-unwritable"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return sink.digest.hexdigest()


class Archive:
    """A bundle that is open for reading; its list of hashes has been read already.

    Attributes:
        folder: name of the only folder in the bundle.
        sums: the listed SHA-256 of each member, by its path below the folder.
    """

    def __init__(self, file: Path, tar: tarfile.TarFile) -> None:
        self._file = file
        self._tar = tar
        first = tar.next()
        self.folder, _, name = first.name.partition("/") if first else ("", "", "")
        if first is None or name != SUMS or not re.fullmatch(_PART, self.folder):
            raise RunError(f"{file} is not a bundle: it does not begin with FOLDER/{SUMS}",
                           code="bundle-invalid", hint=_OTHER)
        if not first.isreg() or first.size > LARGEST_LIST:
            raise RunError(f"{file} is not a bundle: its {SUMS} is not a plain file, or"
                           " is too large",
                           code="bundle-invalid", hint=_OTHER)
        with self._content(first) as source:
            self._list = source.read()
        lines = self._list.decode("ascii", errors="replace").splitlines()
        found = [_LINE.fullmatch(line) for line in lines]
        self.sums = {match[2]: match[1] for match in found if match}
        if not lines or len(self.sums) != len(lines):
            raise RunError(f"{file} is damaged: its {SUMS} is not a list of hashes",
                           code="bundle-damaged", hint=_AGAIN)

    def check(self, to: Path | None, reporter: Reporter) -> None:
        """Compare every member with its hash in the list.

        Unless `to` is None, also write every member into the empty folder `to`.

        Raises:
            RunError: a member is damaged, missing or not listed, or `to` cannot be written.
        """
        left = dict(self.sums)
        size = self._file.stat().st_size
        try:
            with reporter.bar(f"verifying {self._file.name}", size, unit="B") as advance:
                if to is not None:
                    (to / SUMS).write_bytes(self._list)
                while (member := self._tar.next()) is not None:
                    name = self._name(member, left)
                    self._copy(member, name, left.pop(name), to, advance)
        except OSError as error:
            raise RunError(f"cannot unpack {self._file}: {error.strerror or error}",
                           code="file-unwritable") from error
        if left:
            names = list(left)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise RunError(
                f"{self._file} is incomplete or damaged: it lacks {', '.join(names[:3])}{more}",
                code="bundle-damaged", hint=_AGAIN,
            )

    def text(self, name: str) -> bytes:
        """Return the content of a short member of a bundle that `check` has read.

        Raises:
            RunError: the bundle has no member of this name, or the member is too large.
        """
        if name not in self.sums:
            raise RunError(f"{self._file} is not a bundle: it has no {name}", code="bundle-invalid",
                           hint=_OTHER)
        member = self._tar.getmember(f"{self.folder}/{name}")
        if member.size > LARGEST_LIST:
            raise RunError(f"{self._file} is not a bundle: its {name} is too large",
                           code="bundle-invalid", hint=_OTHER)
        with self._content(member) as source:
            return source.read()

    def _name(self, member: tarfile.TarInfo, left: dict[str, str]) -> str:
        folder, _, name = member.name.partition("/")
        if not member.isreg() or member.issparse():
            raise RunError(f"{self._file} is unsafe to unpack: {member.name!r} is not a plain file",
                           code="bundle-unsafe", hint=_UNSAFE)
        if folder != self.folder or name not in left:
            raise RunError(
                f"{self._file} is unsafe to unpack: {member.name!r} is not in its {SUMS},"
                " or occurs twice",
                code="bundle-unsafe", hint=_UNSAFE,
            )
        return name

    def _copy(
        self, member: tarfile.TarInfo, name: str, expected: str, to: Path | None, advance: Advance
    ) -> None:
        target = Path(os.devnull) if to is None else to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with self._content(member) as source, target.open("wb") as sink:
            try:
                while block := source.read(BLOCK):
                    digest.update(block)
                    sink.write(block)
                    advance(len(block))
            except tarfile.ReadError as error:
                raise RunError(f"{self._file} is damaged: it ends within {name}",
                               code="bundle-damaged", hint=_AGAIN) from error
        if digest.hexdigest() != expected:
            raise RunError(
                f"{self._file} is damaged: {name} has SHA-256 {digest.hexdigest()}, "
                f"its {SUMS} lists {expected}",
                code="bundle-damaged", hint=_AGAIN,
            )
        if to is not None and member.mode & 0o100:
            follow_umask(target, program=True)

    def _content(self, member: tarfile.TarInfo) -> IO[bytes]:
        return cast("IO[bytes]", self._tar.extractfile(member))  # None only for other types


@contextmanager
def opened(file: Path) -> Iterator[Archive]:
    """Open the bundle `file` for reading.

    Raises:
        UsageError: the file cannot be read.
        RunError: the file is not a bundle, or is incomplete.
    """
    try:
        with tarfile.open(file, "r:") as tar:
            yield Archive(file, tar)
    except tarfile.TarError as error:
        raise RunError(f"{file} is not a bundle, or is damaged: {error}",
                       code="bundle-invalid", hint=_AGAIN) from error
    except OSError as error:
        raise unreadable(file, error) from error


class _Hashed:
    """A wrapper of a file that computes the SHA-256 of all bytes that are read or written.

    After each block that is written, `advance` is called with the size of the block in bytes.
    """

    def __init__(self, file: IO[bytes], advance: Advance = lambda amount: None) -> None:
        self.file = file
        self.advance = advance
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self.file.read(size)
        self.digest.update(block)
        return block

    def write(self, block: bytes) -> int:
        self.digest.update(block)
        self.advance(len(block))
        return self.file.write(block)


def _add(tar: tarfile.TarFile, folder: str, member: Member) -> None:
    info = tarfile.TarInfo(f"{folder}/{member.name}")
    info.size, info.mtime, info.mode = member.size, member.mtime, member.mode
    source = member.source
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        hashed = _Hashed(file)
        tar.addfile(info, cast("IO[bytes]", hashed))
    if hashed.digest.hexdigest() != member.sha256:
        raise RunError(f"{member.source!s} changed while it was packed", code="file-changed",
                       hint="pack again")
