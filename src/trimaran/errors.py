"""The user-facing error vocabulary: every expected failure is one of these.

Each error says what is wrong (`message`, which names the place) and what to do
about it (`hint`). `cli` prints both and exits with `exit_code`; anything else
that escapes is a defect of Trimaran and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `trimaran`, as documented in the README."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    BUILD = 3
    RUN = 4
    NO_REFERENCE = 5
    INTERRUPTED = 130


class TrimaranError(Exception):
    """Base of every expected failure.

    Args:
        message: what is wrong and where, one sentence or a short list.
        hint: the way out, when there is one.
    """

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(TrimaranError):
    """A wrong argument, an unknown name, or an invalid recipe, image or data file."""


class BuildError(TrimaranError):
    """An image or its wheelhouse could not be fetched, locked or built."""

    exit_code = ExitCode.BUILD


class RunError(TrimaranError):
    """A run could not be prepared (data, engine, space) or ended with an error."""

    exit_code = ExitCode.RUN


class Interrupted(TrimaranError):  # noqa: N818 - a wish of the user, no error
    """The user stopped the command; nothing half-written is left behind."""

    exit_code = ExitCode.INTERRUPTED


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown `kind` called `name`, suggesting the nearest of `known`."""
    names = sorted(known)
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif names:
        hint = f"known: {', '.join(names)}"
    else:
        hint = f"no {kind} is defined here; run inside a Trimaran checkout"
    return UsageError(f"unknown {kind} '{name}'", hint=hint)
