"""Write text to streams whose reading program may end before this program ends."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

GONE = (errno.EIO, errno.EPIPE)
"""Error numbers of writes to a closed terminal, or to a pipe whose reading program has ended."""


def in_utf8() -> None:
    """Restart Python in its UTF-8 mode if the locale has another encoding.

    Names of files and classes are UTF-8; decoded as Latin-1, they would be stored incorrectly. Call
    this function first, because it restarts the program in the same process.
    """
    if sys.getfilesystemencoding().lower() != "utf-8":
        words = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execv(sys.executable, words)  # noqa: S606 - the same program, without a shell


def say(stream: TextIO, text: str) -> None:
    """Write `text` to `stream` and flush it; discard the text if nobody reads `stream` any more."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno not in GONE:
            raise
        mute(stream)


def mute(stream: TextIO) -> None:
    """Redirect `stream` to /dev/null, including its buffered text.

    Otherwise the error of the write would occur again when Python flushes its streams at exit, and
    the exit status would be 120.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
