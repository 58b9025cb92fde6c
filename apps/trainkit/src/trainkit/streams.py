"""Text for people, on streams whose reader may go away before the program ends."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

GONE = (errno.EIO, errno.EPIPE)
"""What a write fails with where the terminal was hung up, or the reader of a pipe has ended."""


def in_utf8() -> None:
    """Go on in Python's UTF-8 mode where the locale has another encoding.

    Names of files and classes are UTF-8: read as Latin-1, they would be stored as other ones. To
    be called before anything is done, for the program is started anew in its own process.
    """
    if sys.getfilesystemencoding().lower() != "utf-8":
        words = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execv(sys.executable, words)  # noqa: S606 - itself, without a shell


def say(stream: TextIO, text: str) -> None:
    """Write `text` to `stream` at once, or to nowhere if its reader is gone."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno not in GONE:
            raise
        mute(stream)


def mute(stream: TextIO) -> None:
    """Let all that is written to `stream` go nowhere, with what waits in it to be written.

    Else Python meets the error again when it flushes its streams at the end, and exits with 120.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
