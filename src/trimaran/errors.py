"""The classes of all expected errors.

Each error has a `message` (what is wrong and where), a stable `code` for the kind of the failure,
and a `hint` (what to do). `cli` prints them and exits with `exit_code`. `of_system` converts errors
of the operating system. Any other exception is a fault of Trimaran.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `trimaran`, as site/docs/reference/exit-codes.md documents them."""

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
    """The base class of all expected errors.

    Args:
        message: what is wrong and where; one sentence or a short list.
        code: the kind of the failure, a key of `error_codes.CODES`; stable when messages change.
        hint: what to do, if that is known.
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
    """The error that an image or its wheelhouse could not be fetched, locked or built."""

    exit_code = ExitCode.BUILD


class RunError(TrimaranError):
    """The error that a run could not be prepared (data, engine, space) or ended with an error."""

    exit_code = ExitCode.RUN


class Fault(TrimaranError):  # noqa: N818 - the term in messages to the user
    """The error for an unexpected fault of Trimaran itself."""

    code = "fault"
    exit_code = ExitCode.FAULT


class Interrupted(TrimaranError):  # noqa: N818 - requested by the user, not an error
    """The error that the user interrupted a command; no incomplete files are left."""

    exit_code = ExitCode.INTERRUPTED
    code = "stopped"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.4) -> str:
    """Return a hint with the `known` names that are similar to `name`, or else with all of them."""
    names = list(known)
    near = get_close_matches(name, names, n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown `name` of a `kind`, with a hint of similar `known` names."""
    names = sorted(known)
    none = f"no {kind} is defined here; run the command in a Trimaran checkout"
    return UsageError(f"unknown {kind} '{name}'", code="name-unknown",
                      hint=nearest(name, names) if names else none)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and its chain of causes, the original cause last."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


_WRONG_NAMES = {
    errno.ENOENT: "check the name, and that no other program removes the file",
    errno.ENOTDIR: "a part of the path is a file, not a folder: correct the path",
    errno.EISDIR: "name a file, not a folder",
    errno.EEXIST: "choose another name, or remove the existing file",
    errno.ENOTEMPTY: "choose another name, or remove the existing folder",
    errno.ELOOP: "the link leads to itself: remove it, or name its target",
    errno.ENAMETOOLONG: "choose a shorter name",
}
"""A dictionary that maps `errno` to a hint, for errors that a file name of the user causes."""

_REFUSALS = {
    errno.EACCES: "check the permissions (`ls -ld`), or choose another folder",
    errno.EPERM: "check the permissions (`ls -ld`), or choose another folder",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.ENOSPC: "free some space on this disk, or choose another folder",
    errno.EDQUOT: "your quota is used up: free some space, or choose another folder",
    errno.EFBIG: "the file system or `ulimit -f` does not allow a file of this size",
    errno.EIO: "the disk or its network fails: try again, or report it to an administrator",
    errno.ESTALE: "the network file system lost the file: try again",
    errno.ETIMEDOUT: "the network file system does not answer: try again",
    errno.EMFILE: "too many open files: see `ulimit -n`",
    errno.ENFILE: "the machine has too many open files: try again later",
    errno.EAGAIN: "too many processes: see `ulimit -u`",
    errno.ENOMEM: "the memory is used up: end other programs, or request more memory",
    errno.ENOEXEC: "the program is not for this machine: install it again",
    errno.E2BIG: "use shorter arguments",
    errno.ETXTBSY: "another program writes the file: try again",
}
"""A dictionary that maps `errno` to a hint, for errors that the state of the machine causes."""


_CODES = {
    errno.EACCES: "permission-denied", errno.EPERM: "permission-denied",
    errno.EROFS: "file-unwritable", errno.ENOSPC: "disk-full", errno.EDQUOT: "disk-full",
    errno.EFBIG: "disk-full", errno.ENOMEM: "memory-full",
}
"""A dictionary that maps `errno` to the code of the error."""


def way_out(error: OSError) -> str | None:
    """Return a hint on what to do after an error of the operating system; None if none is known."""
    return (_WRONG_NAMES | _REFUSALS).get(error.errno or 0)


def code_of(error: OSError, otherwise: str) -> str:
    """Return the error code for an error of the operating system, or `otherwise` if it has none."""
    return _CODES.get(error.errno or 0, otherwise)


def unreadable(
    what: object, error: OSError, kind: type[TrimaranError] = UsageError
) -> TrimaranError:
    """Return an error of the class `kind`: the file or directory `what` cannot be read."""
    code = "file-missing" if error.errno == errno.ENOENT else "file-unreadable"
    return kind(f"cannot read {what}: {error.strerror or error}", code=code, hint=way_out(error))


def of_system(error: OSError) -> TrimaranError | None:
    """Convert an error of the operating system to an expected error of Trimaran.

    Return None if only a fault of Trimaran can cause it.
    """
    if error.errno in _WRONG_NAMES and error.filename is not None:
        code = "file-missing" if error.errno == errno.ENOENT else "argument-invalid"
        return UsageError(f"{error.filename}: {error.strerror}", code=code, hint=way_out(error))
    if error.errno in _REFUSALS:
        place = error.filename or "the system refused an operation"
        code = code_of(error, "system-refused")
        return RunError(f"{place}: {error.strerror}", code=code, hint=way_out(error))
    return None
