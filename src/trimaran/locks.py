"""Who works in the cache: one process makes or removes a thing there, many use it.

The lock of `images/X.sif` is the file `locks/images-X.sif`. Who makes or removes the thing
holds it alone, who uses it shares it; so does a child that inherits the descriptor, as long as
it lives. Locks are the kernel's, so that a killed process holds none. Where the file system
has none, or the cache may not be written, everything goes on without.
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
"""Age at which a scratch folder without a lock is taken for abandoned: no build takes a day."""


class InUseError(BuildError):
    """Somebody works with the thing."""


@contextmanager
def making(place: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the lock of `place` alone, after waiting for all others, and saying for whom."""
    with _held(place, fcntl.LOCK_EX, reporter) as file:
        if file is not None:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}")
            file.flush()
        yield


@contextmanager
def using(place: Path, reporter: Reporter) -> Iterator[list[int]]:
    """Share the lock of `place`; yield the descriptors that a child has to inherit."""
    with _held(place, fcntl.LOCK_SH, reporter) as file:
        yield [] if file is None else [file.fileno()]


@contextmanager
def removing(place: Path) -> Iterator[None]:
    """Hold the lock of `place` alone.

    Raises:
        InUseError: others have it, or a process runs from it; the message says which.
    """
    with _held(place, fcntl.LOCK_EX, None) as file:
        if users := processes(place):
            raise InUseError(f"{users[0]} uses it")
        yield
        if file is not None and not os.path.lexists(place):
            path_of(place).unlink(missing_ok=True)


def user_of(place: Path) -> str | None:
    """Return who uses or makes `place`, or None."""
    if path_of(place).exists():
        try:
            with _held(place, fcntl.LOCK_EX, None):
                pass
        except InUseError as found:
            return found.message.removesuffix(" uses it")
    return next(iter(processes(place)), None)


@contextmanager
def scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder in `parent`, a folder of the cache; gone afterwards, whatever happens.

    It is locked meanwhile: see `left_over`.
    """
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
    """Whether nobody works in this folder of `scratch` any more."""
    lock = path_of(place)
    if not lock.exists():  # made where there are no locks, or a moment ago
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
    """Return the lock file of `place`."""
    return paths.cache("locks", f"{place.parent.name}-{place.name}")


def processes(place: Path) -> list[str]:
    """Return the processes here that were started from `place`, or have a file of it open.

    It finds those that hold no lock: a command that was pasted into a shell.
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
    except OSError:  # it has ended
        return []


def _files(process: Path) -> Iterator[str]:
    """Yield what a process of the same user has open, or mapped into its memory."""
    try:
        for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
            yield line[line.find("/"):]
        for link in (process / "fd").iterdir():
            yield str(link.readlink())
    except OSError:
        return


@contextmanager
def _held(place: Path, mode: int, reporter: Reporter | None) -> Iterator[IO[str] | None]:
    """Hold the lock of `place`: after waiting with a reporter, else InUseError is raised."""
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
    except OSError:  # a cache that others have made: nobody removes anything there
        return None


def _holder(place: Path, file: IO[str]) -> str:
    """Return who has the lock: a process here, else what its last lone holder wrote."""
    if here := processes(path_of(place)):
        return here[0]
    file.seek(0)
    return file.read(200).strip() or "a process of another machine"
