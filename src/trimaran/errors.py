"""The user-facing error vocabulary: every expected failure is one of these.

Each error says what is wrong (`message`, which names the place) and what to do
about it (`hint`). `cli` prints both and exits with `exit_code`. What the system refuses
becomes one of these by `of_system`; anything else that escapes is a fault of Trimaran.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `trimaran`, as site/docs/reference/exit-codes.md documents them."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    BUILD = 3
    RUN = 4
    NO_REFERENCE = 5
    FAULT = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class TrimaranError(Exception):
    """Base of every expected failure.

    Args:
        message: what is wrong and where, one sentence or a short list.
        code: the kind of the failure, one of `error_codes.CODES`; it stays when words change.
        hint: the way out, when there is one.
    """

    exit_code: ExitCode = ExitCode.USAGE
    code = "unspecified"

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.hint = hint


class UsageError(TrimaranError):
    """A wrong argument, an unknown name, or an invalid recipe, image or data file."""


class BuildError(TrimaranError):
    """An image or its wheelhouse could not be fetched, locked or built."""

    exit_code = ExitCode.BUILD


class RunError(TrimaranError):
    """A run could not be prepared (data, engine, space) or ended with an error."""

    exit_code = ExitCode.RUN


class Fault(TrimaranError):  # noqa: N818 - the word that the user reads
    """A fault of Trimaran itself, which nobody expected."""

    code = "fault"
    exit_code = ExitCode.FAULT


class Interrupted(TrimaranError):  # noqa: N818 - a wish of the user, no error
    """The user stopped the command; nothing half-written is left behind."""

    exit_code = ExitCode.INTERRUPTED
    code = "stopped"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.4) -> str:
    """Return which of the `known` names are meant by `name`, as far as one can tell; or all."""
    names = list(known)
    near = get_close_matches(name, names, n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown `kind` called `name`, suggesting the nearest of `known`."""
    names = sorted(known)
    none = f"no {kind} is defined here; run inside a Trimaran checkout"
    return UsageError(f"unknown {kind} '{name}'", code="name-unknown",
                      hint=nearest(name, names) if names else none)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error`, then what led to it, back to the first cause."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


_WRONG_NAMES = {
    errno.ENOENT: "check the name, and that nothing removes it meanwhile",
    errno.ENOTDIR: "a part of the path is a file where a folder should be",
    errno.EISDIR: "name a file, not a folder",
    errno.EEXIST: "choose another name, or remove it",
    errno.ENOTEMPTY: "choose another name, or remove it",
    errno.ELOOP: "the link leads to itself: remove it, or name its target",
    errno.ENAMETOOLONG: "choose a shorter name",
}
"""What is wrong with a name that was given, and the way out."""

_REFUSALS = {
    errno.EACCES: "check who may read and write there (`ls -ld`), or choose another place",
    errno.EPERM: "check who may do that there (`ls -ld`), or choose another place",
    errno.EROFS: "choose another place: this one is read-only",
    errno.ENOSPC: "free some space there, or choose another place",
    errno.EDQUOT: "your quota there is used up: free some space, or choose another place",
    errno.EFBIG: "the file system or `ulimit -f` allows no file so large",
    errno.EIO: "the disk or its network fails: try it again, or tell an administrator",
    errno.ESTALE: "the network file system lost it: try it again",
    errno.ETIMEDOUT: "the network file system does not answer: try it again",
    errno.EMFILE: "too many open files: see `ulimit -n`",
    errno.ENFILE: "the machine has too many open files: try it later",
    errno.EAGAIN: "too many processes: see `ulimit -u`",
    errno.ENOMEM: "the memory is used up: end other programs, or ask for more",
    errno.ENOEXEC: "it is no program for this machine: install it anew",
    errno.E2BIG: "give shorter arguments",
    errno.ETXTBSY: "the file is being written: try it again",
}
"""What the system refuses for reasons that lie with the machine, and the way out."""


_CODES = {
    errno.EACCES: "permission-denied", errno.EPERM: "permission-denied",
    errno.EROFS: "file-unwritable", errno.ENOSPC: "disk-full", errno.EDQUOT: "disk-full",
    errno.EFBIG: "disk-full", errno.ENOMEM: "memory-full",
}
"""Refusal of the system -> code of the error; `system-refused` for the others."""


def way_out(error: OSError) -> str | None:
    """Return what to do about a refusal of the system, if that is known."""
    return (_WRONG_NAMES | _REFUSALS).get(error.errno or 0)


def unreadable(
    what: object, error: OSError, kind: type[TrimaranError] = UsageError
) -> TrimaranError:
    """Return that `what` (a path) cannot be read, why, and what to do about it."""
    return kind(f"cannot read {what}: {error.strerror or error}", code="file-unreadable",
                hint=way_out(error))


def of_system(error: OSError) -> TrimaranError | None:
    """Return what the system's refusal is to the user; None: only a fault of Trimaran makes it."""
    if error.errno in _WRONG_NAMES and error.filename is not None:
        code = "file-missing" if error.errno == errno.ENOENT else "argument-invalid"
        return UsageError(f"{error.filename}: {error.strerror}", code=code, hint=way_out(error))
    if error.errno in _REFUSALS:
        place = error.filename or "cannot go on"
        code = _CODES.get(error.errno or 0, "system-refused")
        return RunError(f"{place}: {error.strerror}", code=code, hint=way_out(error))
    return None
