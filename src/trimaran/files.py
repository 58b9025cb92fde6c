"""Files that are whole at every moment: written aside, flushed to disk, then renamed; locks."""

from __future__ import annotations

import fcntl
import hashlib
import os
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
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content.encode() if isinstance(content, str) else content)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
