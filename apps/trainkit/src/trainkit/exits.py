"""The exit codes of the app contract, and the exception class of each."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Callable
from enum import IntEnum

from trainkit.streams import say

DEFECT = 1
"""Exit code of Python after an exception that is not expected."""
FULL = (errno.ENOSPC, errno.EDQUOT)


class ExitCode(IntEnum):
    """Exit codes of every app (`apps/README.md`)."""

    DONE = 0
    BAD_ARGUMENTS = 2
    BAD_DATA = 3
    DIVERGED = 4
    PEER_LOST = 69
    """EX_UNAVAILABLE of sysexits.h: another rank ended or cannot be reached."""
    RANKS_DIFFER = 70
    """EX_SOFTWARE of sysexits.h: the ranks have different weights, so the result is invalid."""
    NO_SPACE = 74
    """EX_IOERR of sysexits.h: a checkpoint could not be written; the previous one is intact."""
    STOPPED = 75
    """EX_TEMPFAIL of sysexits.h: a signal stopped the run, which `--resume auto` continues."""
    INTERRUPTED = 130
    """128 + SIGINT, as in a shell: Ctrl-C outside the training loop; no file is left incomplete."""


class AppError(Exception):
    """Base class of all expected failures.

    Args:
        message: what is wrong, where, and a remedy.
        code: name of the kind of failure, in kebab case, which does not change if the message is
            reworded. The apps of this repository use the keys of `error_codes.CODES`; another app
            may use codes of its own. By default, the error has the code of its class.

    Attributes:
        shared: whether all ranks raise the error at the same moment; then only rank 0 reports it.
        rank: rank that raised the error; None if there is only one rank.
    """

    exit_code: ExitCode = ExitCode.BAD_ARGUMENTS
    code = "app-failed"
    shared = False
    rank: int | None = None

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code


class ArgumentError(AppError):
    """Error for arguments that contradict each other, the data, or the run in `--out`."""

    code = "argument-invalid"


class DataError(AppError):
    """Error for an unreadable data set, record or checkpoint; the message names it."""

    exit_code = ExitCode.BAD_DATA
    code = "data-invalid"


class DivergedError(AppError):
    """Error for a loss or weights that are NaN or infinite; the message names the step."""

    exit_code = ExitCode.DIVERGED
    code = "loss-not-finite"
    shared = True


class NoSpaceError(AppError):
    """Error for a checkpoint that could not be written; the previous checkpoint is intact."""

    exit_code = ExitCode.NO_SPACE
    code = "file-unwritable"


class PeerError(AppError):
    """Error for a lost connection: another rank ended or cannot be reached.

    The message of that rank contains the cause.
    """

    exit_code = ExitCode.PEER_LOST
    code = "rank-lost"


class RanksDifferError(AppError):
    """Error for ranks with different weights.

    Either the gradients were not averaged, or memory is faulty.
    """

    exit_code = ExitCode.RANKS_DIFFER
    code = "ranks-differ"
    shared = True


class StoppedError(AppError):
    """Error for an early stop that a signal requested, raised after a checkpoint was written."""

    exit_code = ExitCode.STOPPED
    code = "stopped"
    shared = True


class _InterruptedError(AppError):
    """Error for Ctrl-C."""

    exit_code = ExitCode.INTERRUPTED
    code = "stopped"


def run(name: str, main: Callable[[], None]) -> int:
    """Run `main`; return the exit code.

    An `AppError`, Ctrl-C, a full disk and a path whose name is too long are reported on stderr
    without a traceback, in one line that begins with `NAME: error[CODE]: `. Any other exception is
    a defect, and keeps its traceback.
    """
    for stream in (sys.stdout, sys.stderr):  # a path may contain bytes that are not UTF-8
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        main()
    except (AppError, OSError, KeyboardInterrupt) as error:
        failure = expected(error)
        if failure is None:
            raise
        rank = failure.rank
        where = name if rank is None else f"{name}, rank {rank}"
        text = "" if failure.shared and rank else reported(failure.code, str(failure))
        say(sys.stdout, "")  # flush stdout before the error message
        if text:
            say(sys.stderr, f"{where}: {text}\n")
        return int(failure.exit_code)
    return int(ExitCode.DONE)


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with `error`.

    The exit code is 1 if the error is not an expected failure, but a bug of the program.
    """
    failure = expected(error)
    return DEFECT if failure is None else int(failure.exit_code)


def expected(error: BaseException) -> AppError | None:
    """Return the `AppError` to which `run` converts an error; None for a bug of the program."""
    if isinstance(error, AppError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return _InterruptedError("interrupted")
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENAMETOOLONG:
        return ArgumentError(f"{error}: choose a shorter name", code="argument-invalid")
    if number in FULL:
        return NoSpaceError(
            f"{error}; finished files are intact. Free some space and run the command again, "
            "a training with --resume auto",
            code="disk-full",
        )
    return None


def reported(code: str, message: str) -> str:
    """Return the text to print for an error, in the format of the error messages of `trimaran`."""
    return f"error[{code}]: {message}"
