"""Files that are whole at every moment: written aside, flushed to disk, then renamed; locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimaran.errors import UsageError


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


def follow_umask(path: Path, *, program: bool = False) -> None:
    """Give `path` the rights of any new file or folder: `tempfile` makes all for one user alone."""
    # There is no other way to ask; what a thread makes meanwhile is too private, not too open.
    masked = os.umask(0o077)
    os.umask(masked)
    path.chmod((0o777 if program or path.is_dir() else 0o666) & ~masked)


def set_aside(path: Path) -> Path:
    """Rename what is damaged to `<name>.damaged`, and return that: nothing is ever lost."""
    aside, number = path.with_name(f"{path.name}.damaged"), 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{number}")
    return path.rename(aside)


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


def refusal(error: OSError, place: Path) -> str:
    """Return why the system refused to write to `place`: of a full disk also which one it is."""
    reason = error.strerror or str(error)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{reason} ({room(place)})" if full else reason


@contextmanager
def locked(path: Path, taken: str) -> Iterator[int]:
    """Hold the lock file `path`, and yield its descriptor: who inherits it holds the lock, too.

    Raises:
        UsageError: with the text `taken`: another process has it.
    """
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(taken) from None
        except OSError:
            pass  # some parallel file systems have no locks
        yield lock.fileno()


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
