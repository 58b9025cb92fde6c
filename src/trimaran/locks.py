"""Lock items of the cache: one process creates or removes an item, or many processes use it.

The lock of `images/X.sif` is the file `locks/images-X.sif`. A process that creates or removes the
item holds the lock exclusively; processes that use the item share the lock. A child process that
inherits the descriptor also holds the lock. The kernel releases the locks of a killed process. If
the file system supports no locks, or the cache is not writable, the work continues without locks.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from trimaran import paths
from trimaran.errors import BuildError
from trimaran.files import is_still
from trimaran.reporting import Reporter

STALE_SECONDS = 24 * 3600
"""Age in seconds at which an unlocked scratch folder counts as abandoned: no build takes a day."""


class InUseError(BuildError):
    """The error that another process uses the item."""

    code = "in-use"


@contextmanager
def making(place: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the lock of the cache item `place` exclusively, to create it.

    Wait and print a note while other processes hold the lock.
    """
    with _held(place, fcntl.LOCK_EX, reporter) as file:
        if file is not None:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}")
            file.flush()
        yield


@contextmanager
def using(place: Path, reporter: Reporter) -> Iterator[list[int]]:
    """Share the lock of the cache item `place` with other users of the item.

    Yield the file descriptors that a child process must inherit to hold the lock, too.
    """
    with _held(place, fcntl.LOCK_SH, reporter) as file:
        yield [] if file is None else [file.fileno()]


@contextmanager
def removing(place: Path) -> Iterator[None]:
    """Hold the lock of the cache item `place` exclusively, to remove it; do not wait for the lock.

    Raises:
        InUseError: another process holds the lock or was started from `place`; the message names
            this process.
    """
    with _held(place, fcntl.LOCK_EX, None) as file:
        if users := processes(place):
            raise InUseError(f"{users[0]} uses it")
        yield
        if file is not None and not os.path.lexists(place):
            path_of(place).unlink(missing_ok=True)


def user_of(place: Path) -> str | None:
    """Return a description of a process that uses or creates the cache item `place`, or None."""
    if path_of(place).exists():
        try:
            with _held(place, fcntl.LOCK_EX, None):
                pass
        except InUseError as found:
            return found.message.removesuffix(" uses it")
    return next(iter(processes(place)), None)


@contextmanager
def scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new, locked folder in the cache folder `parent`, and remove it afterwards."""
    parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    with _held(place, fcntl.LOCK_EX, None) as file:
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            if file is not None:
                path_of(place).unlink(missing_ok=True)


def left_over(place: Path) -> bool:
    """Return True if `place`, a folder that `scratch` created, is no longer used by any process."""
    lock = path_of(place)
    if not lock.exists():  # the file system has no locks, or the folder is new
        return time.time() - place.lstat().st_mtime > STALE_SECONDS
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return time.time() - place.lstat().st_mtime > STALE_SECONDS
    return True


def path_of(place: Path) -> Path:
    """Return the path of the lock file of the cache item `place`."""
    return paths.cache("locks", f"{place.parent.name}-{place.name}")


def processes(place: Path) -> list[str]:
    """Return the processes of this host that were started from `place` or have its files open.

    Some of them hold no lock, such as a command that the user pasted into a shell.
    """
    found = []
    names = {str(place), str(place.resolve())}
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        words = _words(folder)
        if any(_is_of(word, names) for word in (*words, *_files(folder))):
            found.append(f"process {folder.name} ({' '.join(words)[:60]})")
    return found


def _is_of(word: str, names: set[str]) -> bool:
    return word in names or any(word.startswith(f"{name}/") for name in names)


def _words(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:  # the process has ended
        return []


def _files(process: Path) -> Iterator[str]:
    """Yield the files that a process of the same user has open or mapped into memory."""
    try:
        for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
            yield line[line.find("/"):]
        for link in (process / "fd").iterdir():
            yield str(link.readlink())
    except OSError:
        return


@contextmanager
def _held(place: Path, mode: int, reporter: Reporter | None) -> Iterator[IO[str] | None]:
    """Hold the lock of the cache item `place`.

    If another process holds a conflicting lock, report this with `reporter` and wait. If `reporter`
    is None, raise InUseError instead of waiting.
    """
    while (file := _open(place)) is not None:
        with file:
            try:
                fcntl.flock(file, mode | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(place, file)
                if reporter is None:
                    raise InUseError(f"{holder} uses it") from None
                reporter.note(f"  {place.name}: waiting for {holder}")
                fcntl.flock(file, mode)
            except OSError:
                pass
            if is_still(file, path_of(place)):
                yield file
                return
    yield None


def _open(place: Path) -> IO[str] | None:
    lock = path_of(place)
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        return lock.open("a+", encoding="utf-8")
    except OSError:  # a read-only cache of another user: nothing in it is removed
        return None


def _holder(place: Path, file: IO[str]) -> str:
    """Return a description of the process that holds the lock of the cache item `place`.

    It is read from the process table of this host. If the holder runs on another host, the text
    that the holder wrote into the lock file is returned.
    """
    if here := processes(path_of(place)):
        return here[0]
    file.seek(0)
    return file.read(200).strip() or "a process of another machine"
