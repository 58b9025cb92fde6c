"""Show progress to the user: a bar on a terminal, or plain lines in any other output."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from trainkit.ranks import detect
from trainkit.streams import GONE, mute, say


def has_bar(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal that can show a bar, and no launcher is in use.

    A launcher mixes the output of its ranks, and Open MPI's launcher gives each rank a terminal
    with 0 columns.
    """
    if not stream.isatty() or detect().launcher is not None:
        return False
    try:
        return os.get_terminal_size(stream.fileno()).columns > 0
    except OSError:
        return False


class Console:
    """The progress of a training: rank 0 shows a bar on a terminal or prints plain lines.

    If the terminal is closed, or the program that reads the output ends, the training continues.

    Args:
        total: steps of the whole run.
        done: steps that the run had completed before it was resumed.
        quiet: whether to print nothing, as on all ranks except rank 0.
        stream: output stream; default: stdout.
    """

    def __init__(
        self, total: int, done: int = 0, *, quiet: bool = False, stream: TextIO | None = None
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._quiet = quiet
        self._bar: Any = None
        if not quiet and has_bar(self._stream):
            from tqdm import tqdm

            self._bar = tqdm(
                total=total, initial=done, unit="step", file=self._stream, dynamic_ncols=True
            )

    def step(self) -> None:
        """Advance the bar by one step."""
        if self._bar is not None:
            with _unheard(self._stream):
                self._bar.update()

    def progress(self, text: str) -> None:
        """Show `text`, the state of the training, next to the bar; without a bar, print a line."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
        else:
            self.line(text)

    def line(self, text: str) -> None:
        """Print one line, above the bar if there is one."""
        if self._quiet:
            return
        if self._bar is None:
            say(self._stream, text + "\n")
            return
        with _unheard(self._stream):
            self._bar.write(text, file=self._stream)

    def close(self) -> None:
        """Close the bar, which stays visible in its last state."""
        if self._bar is not None:
            with _unheard(self._stream):
                self._bar.close()


class Counter:
    """The progress of a task with `total` items: a bar, or a line every few seconds.

    Args:
        what: description of the task.
        total: number of items.
        unit: name of the items, in the plural.
        quiet: whether to print nothing, as on all ranks except rank 0.
        stream: output stream; default: stdout.
        moved: function that is called after each update.
    """

    EVERY = 5.0  # seconds between two lines

    def __init__(
        self, what: str, total: int, unit: str, *, quiet: bool = False,
        stream: TextIO | None = None, moved: Callable[[], object] = lambda: None,
    ) -> None:
        self._moved = moved
        self._what, self._total, self._unit = what, total, unit
        self._stream = sys.stdout if stream is None else stream
        self._quiet, self._done = quiet, 0
        self._began = self._said = time.monotonic()
        self._bar: Any = None
        if not quiet and has_bar(self._stream):
            from tqdm import tqdm

            self._bar = tqdm(
                total=total, desc=what, unit=f" {unit}", file=self._stream, dynamic_ncols=True,
                leave=False,
            )

    def add(self, count: int = 1) -> None:
        """Record that `count` more items are done."""
        self._moved()
        self._done += count
        if self._bar is not None:
            with _unheard(self._stream):
                self._bar.update(count)
            return
        now = time.monotonic()
        if not self._quiet and now - self._said >= self.EVERY:
            self._said = now
            speed = self._done / (now - self._began)
            text = f"{self._what}: {self._done} of {self._total} {self._unit}, {speed:.3g}/s\n"
            say(self._stream, text)

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            with _unheard(self._stream):
                self._bar.close()


@contextmanager
def _unheard(stream: TextIO) -> Iterator[None]:
    """Run the `with` block; discard all output once the program that reads `stream` has ended."""
    try:
        yield
    except OSError as error:
        if error.errno not in GONE:
            raise
        mute(stream)
