"""Files that are whole at every moment: written aside, flushed to disk, then renamed; locks.

A folder may come from somebody else. A name in it that is a link could lead a writer to any
file of the user, and a reader to one that is none of the folder's: neither follows it.
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

from trimaran.errors import Interrupted, RunError, TrimaranError, UsageError
from trimaran.reporting import Advance, Reporter

SPARE_BYTES = 16 * 1024 * 1024
"""Left free beyond what is written, so that a download never fills a disk to the last byte."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace `path`; a reader or a crash sees the old or the new file, never half of one."""
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
    """Write a new file, and its folder.

    Raises:
        UsageError: it exists.
    """
    if path.exists():
        raise UsageError(f"{path} exists: evidence is never overwritten")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content + "\n")


def follow_umask(path: Path, *, program: bool = False) -> None:
    """Give `path` the rights of any new file or folder: `tempfile` makes all for one user alone."""
    # There is no other way to ask; what a thread makes meanwhile is too private, not too open.
    masked = os.umask(0o077)
    os.umask(masked)
    path.chmod((0o777 if program or path.is_dir() else 0o666) & ~masked)


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link to the file `source`, or a copy where the system allows none."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def set_aside(path: Path) -> Path:
    """Rename what is damaged to `<name>.damaged`, and return that: nothing is ever lost."""
    aside, number = path.with_name(f"{path.name}.damaged"), 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{number}")
    return path.rename(aside)


def make_folder(path: Path, reporter: Reporter) -> None:
    """Make the folder `path`; what lies there and is none is set aside, and said."""
    if os.path.lexists(path) and not path.is_dir():
        reporter.warn(f"{path} is no folder; set aside as {set_aside(path).name}")
    path.mkdir(parents=True, exist_ok=True)


IN_CACHE = "set TRIMARAN_CACHE to a folder with room where you may write"
"""What to do where the cache cannot be written to."""


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Have what the system refuses name `path`: of a full disk it names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def room(path: Path) -> str:
    """Return which file system `path` is, or would be, on, and how much is free there."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    while not place.is_mount():
        place = place.parent
    return f"{usage.free / 1e6:,.0f} of {usage.total / 1e6:,.0f} MB free on {place}"


_LARGER = (
    "free some space there (`trimaran cache prune`), or choose a folder on a larger disk:"
    " TRIMARAN_CACHE, of a build also TMPDIR"
)


def check_space(
    folder: Path, needed: int, what: str, error: type[TrimaranError], hint: str = _LARGER
) -> None:
    """Raise `error` when the existing `folder` has less than `needed` bytes free for `what`."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise error(
            f"no space for {what}: {needed / 1e6:,.0f} MB needed in {folder},"
            f" {free / 1e6:,.0f} MB free",
            hint=hint,
        )


def refusal(error: OSError, place: Path) -> str:
    """Return why the system refused to write to `place`: of a full disk also which one it is."""
    reason = error.strerror or str(error)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{reason} ({room(place)})" if full else reason


@contextmanager
def writing(
    what: str, place: Path, *, hint: str | None = None, error: type[TrimaranError] = RunError
) -> Iterator[None]:
    """Raise `error`, "cannot `what`", where the system refuses to write to `place`, and say why."""
    try:
        yield
    except OSError as problem:
        raise error(f"cannot {what}: {refusal(problem, place)}", hint=hint) from problem


@contextmanager
def resumable(doing: str) -> Iterator[None]:
    """On Ctrl-C, say that `doing` was stopped, and how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"stopped while {doing}", hint="run it again to go on") from None


def open_plain(path: str | Path, flags: int) -> int:
    """Return a descriptor of the plain file `path`, opened with `flags` of `os.open`.

    Made to be the `opener` of `open`, too.

    Raises:
        UsageError: it is a link, a folder or no file at all, or, to be written, has a second name.
        OSError: it cannot be opened.
    """
    try:
        # NONBLOCK: a pipe without an other end would be waited for.
        found = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if Path(path).is_symlink():
            raise _foreign(path, "is a link, which is not followed") from error
        if Path(path).exists() and not Path(path).is_file():
            raise _foreign(path, "is no plain file") from error
        raise
    facts = os.fstat(found)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if not stat.S_ISREG(facts.st_mode) or (writes and facts.st_nlink > 1):
        os.close(found)
        plain = stat.S_ISREG(facts.st_mode)
        raise _foreign(path, "is another file, too (a hard link)" if plain else "is no plain file")
    return found


PLAIN_BYTES = 64 * 1024 * 1024
"""Size of a file that is read whole; those of the project's own have a hundredth of it."""

LINES_BYTES = 1 << 30
"""Size of a file of lines, such as metrics: some four million."""


def read_plain(path: Path, limit: int = PLAIN_BYTES) -> bytes:
    """Return the content of the plain file `path`, of at most `limit` bytes; see `open_plain`.

    Raises:
        UsageError: it is larger, too.
    """
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        _check_size(file, path, limit)
        return file.read()


def open_lines(path: Path) -> IO[str]:
    """Open a plain file to read its lines, of at most `LINES_BYTES`; bytes of no text are marked.

    Raises:
        UsageError: it is larger; or see `open_plain`.
    """
    file = os.fdopen(open_plain(path, os.O_RDONLY), encoding="utf-8", errors="replace")
    try:
        _check_size(file, path, LINES_BYTES)
    except UsageError:
        file.close()
        raise
    return file


def _check_size(file: IO[Any], path: Path, limit: int) -> None:
    if os.fstat(file.fileno()).st_size > limit:  # zeros of a file with holes need no disk
        raise UsageError(f"{path} is larger than {limit / 1e6:,.0f} MB",
                         hint="more than Trimaran or an app writes; `tail` shows its end")


def read_text(path: Path) -> str:
    """Return the text of a plain file; see `read_plain`.

    Raises:
        UsageError: it is not UTF-8, too.
    """
    try:
        return read_plain(path).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})",
                         hint="take an undamaged copy, or remove what is no text") from error


def read_end(path: Path, amount: int) -> bytes:
    """Return the last `amount` bytes of a plain file, which may have any size."""
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - amount))
        return file.read(amount)


def add_line(path: Path, line: str) -> None:
    """Add a line to a plain file, which is made where there is none; see `open_plain`."""
    with os.fdopen(open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
        file.write(f"{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def touch_plain(path: Path) -> None:
    """Make an empty file where there is none; see `open_plain`."""
    os.close(open_plain(path, os.O_WRONLY | os.O_CREAT))


def leads_outside(folder: Path) -> Path | None:
    """Return a link below `folder` that leads out of it, or something that is no file; or None."""
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
    return UsageError(f"{path} {what}", hint="remove it, or put a file of its own there")


@contextmanager
def locked(path: Path, taken: str) -> Iterator[int]:
    """Hold the lock file `path`, and yield its descriptor: who inherits it holds the lock, too.

    Raises:
        UsageError: with the text `taken`: another process has it; or see `open_plain`.
        RunError: it cannot be written.
    """
    try:
        opened = open_plain(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    with os.fdopen(opened, "r+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(taken) from None
        except OSError:
            pass  # some parallel file systems have no locks
        yield lock.fileno()


def is_still(file: IO[Any], path: Path) -> bool:
    """Whether the open `file` still is what `path` names: another process may have moved it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def sha256(path: Path, advance: Advance = lambda amount: None) -> str:
    """Return the SHA-256 of a file, in hexadecimal; `advance` gets the bytes that were read."""
    return _hashed(hashlib.sha256(), path, advance)


def md5(path: Path, advance: Advance = lambda amount: None) -> str:
    """Return the MD5 of a file, for publishers that give no more; see `sha256`."""
    return _hashed(hashlib.md5(usedforsecurity=False), path, advance)


def _hashed(digest: hashlib._Hash, path: Path, advance: Advance) -> str:
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()
