"""Write files atomically, read plain files safely, lock and hash files.

A folder may come from another person. A link in it could cause a write to any file of the user, or
disclose a file outside of the folder. Therefore functions that read or write follow no links.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from trimaran.errors import Interrupted, RunError, TrimaranError, UsageError, code_of, way_out
from trimaran.reporting import Advance, Reporter

SPARE_BYTES = 16 * 1024 * 1024
"""Number of bytes that must stay free on a disk after a file was written, such as a download."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace `path` atomically: even after a crash, it is the complete old or new file."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with named(path), os.fdopen(descriptor, "wb") as handle:
            handle.write(content.encode() if isinstance(content, str) else content)
            handle.flush()
            os.fsync(handle.fileno())
        follow_umask(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_evidence(path: Path, content: str) -> None:
    """Write a new file with evidence, and create its folder.

    Raises:
        UsageError: the file exists.
    """
    if path.exists():
        raise UsageError(f"{path} exists already, and evidence is never overwritten",
                         code="file-exists", hint="choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content + "\n")


def follow_umask(path: Path, *, program: bool = False) -> None:
    """Set the permissions of `path` by the umask, because `tempfile` creates private files.

    If `program` is true, the file becomes executable.
    """
    # Only setting the umask returns the old one. A file that another thread creates in the meantime
    # is private, which is safer than open to all.
    masked = os.umask(0o077)
    os.umask(masked)
    path.chmod((0o777 if program or path.is_dir() else 0o666) & ~masked)


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link to the file `source`, or a copy if links are not possible."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def set_aside(path: Path) -> Path:
    """Rename a damaged file to `<name>.damaged` and return the new path; nothing is deleted."""
    aside, number = path.with_name(f"{path.name}.damaged"), 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{number}")
    return path.rename(aside)


def make_folder(path: Path, reporter: Reporter) -> None:
    """Create the folder `path`; if a file has this name, rename the file and warn."""
    if os.path.lexists(path) and not path.is_dir():
        reporter.warn(f"{path} is not a folder; renamed to {set_aside(path).name}")
    path.mkdir(parents=True, exist_ok=True)


IN_CACHE = "set TRIMARAN_CACHE to a writable folder with enough free space"
"""Hint of errors that report a failed write to the cache: what the user can do."""


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add `path` to an OSError in the `with` block if the error has no file name.

    The error for a full disk, for example, has no file name.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def room(path: Path) -> str:
    """Return the mount point and the free space in MB of the file system of `path`, as text."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    while not place.is_mount():
        place = place.parent
    return f"{usage.free / 1e6:,.0f} of {usage.total / 1e6:,.0f} MB free on {place}"


_LARGER = (
    "free some space (`trimaran cache prune`), or choose a folder on a larger disk with"
    " TRIMARAN_CACHE (for a build also TMPDIR)"
)


def check_space(
    folder: Path, needed: int, what: str, error: type[TrimaranError], hint: str = _LARGER
) -> None:
    """Check that the existing `folder` has at least `needed` bytes of free space.

    Args:
        folder: an existing folder on the file system.
        needed: number of bytes.
        what: the purpose of the space, for the message.
        error: the class of the error that is raised.
        hint: the hint of the error.

    Raises:
        TrimaranError: The free space is smaller; the error has the class `error`.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise error(
            f"no space for {what}: {needed / 1e6:,.0f} MB needed in {folder},"
            f" {free / 1e6:,.0f} MB free",
            code="disk-full", hint=hint,
        )


def refusal(error: OSError, place: Path) -> str:
    """Return the reason of `error`, raised by a write to `place`, as text.

    If the disk or the quota is full, mount point and free space are added.
    """
    reason = error.strerror or str(error)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{reason} ({room(place)})" if full else reason


@contextmanager
def writing(
    what: str, place: Path, *, hint: str | None = None, error: type[TrimaranError] = RunError
) -> Iterator[None]:
    """Raise `error` in place of an OSError in the `with` block, which writes to `place`.

    The message of the new error is "cannot `what`", followed by the reason.
    """
    try:
        yield
    except OSError as problem:
        raise error(f"cannot {what}: {refusal(problem, place)}",
                    code=code_of(problem, "file-unwritable"), hint=hint) from problem


@contextmanager
def resumable(doing: str) -> Iterator[None]:
    """Convert Ctrl-C in the block to Interrupted, with the hint to run the same command again.

    `doing` describes the interrupted operation in the message.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"stopped while {doing}",
                          hint="run the same command again to resume") from None


def open_plain(path: str | Path, flags: int) -> int:
    """Return a descriptor of the plain file `path`, opened with `flags` of `os.open`.

    The function can be the `opener` of `open`.

    Raises:
        UsageError: `path` is a link, a folder or a special file, or it is opened for writing and
            has another hard link.
        OSError: the file cannot be opened.
    """
    try:
        # Without NONBLOCK, opening a pipe would wait for its other end.
        found = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if Path(path).is_symlink():
            raise _foreign(path, "is a link, which is not followed") from error
        if Path(path).exists() and not Path(path).is_file():
            raise _foreign(path, "is not a plain file") from error
        raise
    facts = os.fstat(found)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if not stat.S_ISREG(facts.st_mode) or (writes and facts.st_nlink > 1):
        os.close(found)
        plain = stat.S_ISREG(facts.st_mode)
        raise _foreign(path, "has another hard link" if plain else "is not a plain file")
    return found


PLAIN_BYTES = 64 * 1024 * 1024
"""Maximum size in bytes of a file that is read at once; Trimaran's files are far smaller."""

LINES_BYTES = 1 << 30
"""Maximum size in bytes of a file that is read by lines: about four million lines of metrics."""


def read_plain(path: Path, limit: int = PLAIN_BYTES) -> bytes:
    """Return the content of the plain file `path`, of at most `limit` bytes.

    Raises:
        UsageError: the file is larger, or not a plain file; see `open_plain`.
        OSError: the file cannot be read.
    """
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        _check_size(file, path, limit)
        return file.read()


def open_lines(path: Path) -> IO[str]:
    """Open a plain file of at most `LINES_BYTES` to read its lines.

    Bytes that are not UTF-8 are replaced by U+FFFD.

    Raises:
        UsageError: the file is larger, or not a plain file; see `open_plain`.
        OSError: the file cannot be read.
    """
    file = os.fdopen(open_plain(path, os.O_RDONLY), encoding="utf-8", errors="replace")
    try:
        _check_size(file, path, LINES_BYTES)
    except UsageError:
        file.close()
        raise
    return file


def _check_size(file: IO[Any], path: Path, limit: int) -> None:
    if os.fstat(file.fileno()).st_size > limit:  # a sparse file is huge without filling the disk
        raise UsageError(f"{path} is larger than {limit / 1e6:,.0f} MB", code="file-too-large",
                         hint="Trimaran and apps write smaller files; `tail` shows its end")


def read_text(path: Path) -> str:
    """Return the text of a plain file; see `read_plain`.

    Raises:
        UsageError: the file is not UTF-8, is too large, or is not a plain file.
        OSError: the file cannot be read.
    """
    try:
        return read_plain(path).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})", code="file-invalid",
                         hint="use an undamaged copy, or remove these bytes") from error


def read_end(path: Path, amount: int) -> bytes:
    """Return the last `amount` bytes of a plain file of any size; see `open_plain`."""
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - amount))
        return file.read(amount)


def add_line(path: Path, line: str) -> None:
    """Append a line to a plain file, and create the file if needed; see `open_plain`."""
    with os.fdopen(open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def touch_plain(path: Path) -> None:
    """Create an empty file unless it exists; see `open_plain`."""
    os.close(open_plain(path, os.O_WRONLY | os.O_CREAT))


def leads_outside(folder: Path) -> Path | None:
    """Return the first path below `folder` that is a link out of it or a special file, or None."""
    root = Path(os.path.realpath(folder))
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                if not Path(os.path.realpath(path)).is_relative_to(root):
                    return path
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return path
    return None


def _foreign(path: str | Path, what: str) -> UsageError:
    return UsageError(f"{path} {what}", code="file-not-plain",
                      hint="remove it, or replace it by a plain file")


@contextmanager
def locked(path: Path, taken: str) -> Iterator[int]:
    """Hold the lock file `path`, and yield its descriptor.

    A child process that inherits the descriptor also holds the lock.

    Raises:
        UsageError: another process holds the lock (the message is `taken`), or `path` is not a
            plain file.
        RunError: the lock file cannot be written.
    """
    try:
        opened = open_plain(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}",
                       code=code_of(error, "file-unwritable"), hint=way_out(error)) from error
    with os.fdopen(opened, "r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(taken, code="in-use") from None
        except OSError:
            pass  # some parallel file systems have no locks
        yield lock.fileno()


def is_still(file: IO[Any], path: Path) -> bool:
    """Return whether `path` is still the open `file`; False if the file was renamed or replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def sha256(path: Path, advance: Advance = lambda amount: None) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    After each block of the file, `advance` is called with the number of bytes in the block.
    """
    return _hashed(hashlib.sha256(), path, advance)


def md5(path: Path, advance: Advance = lambda amount: None) -> str:
    """Return the MD5 of a file, for publishers that provide no better hash; see `sha256`."""
    return _hashed(hashlib.md5(usedforsecurity=False), path, advance)


def _hashed(digest: hashlib._Hash, path: Path, advance: Advance) -> str:
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()
