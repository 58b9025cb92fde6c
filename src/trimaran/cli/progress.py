"""Show the progress of long work: a bar on a terminal; elsewhere lines every few seconds.

All long operations have a bar, even if the amount of work is unknown, so that no command is silent
for long.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from trimaran.reporting import Advance
from trimaran.terminal_safety import message

SILENT_SECONDS = 4.0
"""Number of seconds without output after which a line reports the progress."""

LONGEST_SILENCE = 60.0
"""Maximum number of seconds between two progress lines; the intervals double up to this limit."""


def silences() -> Iterator[float]:
    """Yield the seconds without output before each line of progress."""
    seconds = SILENT_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, LONGEST_SILENCE)


@dataclass
class Bar:
    """Progress of one operation.

    Attributes:
        title: description of the work.
        total: amount of work in `unit`; None: unknown.
        unit: unit of the amounts; "B": bytes.
        done: amount that is done.
        begun: time of the start on the monotonic clock, in seconds.
        detail: last output line of the child process that does the work.
        before: amount that was done before the start.
    """

    title: str
    total: float | None
    unit: str
    done: float
    begun: float = field(default_factory=time.monotonic)
    detail: str = ""
    before: float = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.before = self.done

    def advance(self, amount: float) -> None:
        """Add the amount that was done since the last call; this method is thread-safe."""
        with self._lock:
            self.done += amount

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.begun

    def text(self) -> str:
        """Return the progress as text: amount, elapsed time, and estimated time left."""
        parts = [f"{self.seconds:.0f} s"]
        if self.total:
            share = min(self.done / self.total, 1.0)
            parts = [f"{self._amount()} ({share:.0%})", *parts]
            new = self.done - self.before
            if new > 0 and share < 1:
                left = (self.total - self.done) * self.seconds / new
                parts.append(f"about {left:.0f} s left")
        return ", ".join(parts) + (f"; {self.detail}" if self.detail else "")

    def _amount(self) -> str:
        if self.unit == "B":
            return f"{self.done / 1e6:,.1f} of {(self.total or 0) / 1e6:,.1f} MB"
        return f"{self.done:,.0f} of {self.total or 0:,.0f} {self.unit}"


class Bars:
    """The open progress bars of one console, which are nested.

    Args:
        console: the console to draw on.
        say: prints a line on the console.
    """

    def __init__(self, console: Console, say: Callable[[str], None]) -> None:
        self._console, self._say = console, say
        self._open: list[Bar] = []
        self._heard = time.monotonic()

    def heard(self) -> None:
        """Record that a line was printed now."""
        self._heard = time.monotonic()

    def detail(self, text: str) -> None:
        """Show an output line of a child process next to the innermost bar."""
        if self._open:
            self._open[-1].detail = text.strip()

    @contextmanager
    def bar(self, title: str, total: float | None, unit: str, done: float) -> Iterator[Advance]:
        """Show a bar, and print a line with the elapsed time at its end.

        An operation of unknown amount that takes less than a second prints no line.
        """
        bar = Bar(title, total, unit, done)
        first = not self._open
        self._open.append(bar)
        try:
            if first:
                with self._drawn() if self._has_room() else self._told():
                    yield bar.advance
            else:
                yield bar.advance
        finally:
            self._open.remove(bar)
        if total is not None or bar.seconds >= 1:
            self._say(f"  {title} ({bar.seconds:.1f} s)")

    def _has_room(self) -> bool:
        """Return whether the console is wide enough for a bar (under mpirun, its width is 0)."""
        try:
            columns = os.get_terminal_size(self._console.file.fileno()).columns
        except (OSError, ValueError):
            columns = self._console.width
        return self._console.is_terminal and columns > 0

    def _drawn(self) -> Live:
        """Return a live display of the innermost bar."""
        return Live(
            get_renderable=self._picture, console=self._console, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )

    def _picture(self) -> Table:
        picture = Table.grid(
            Column(no_wrap=True), Column(), Column(no_wrap=True, overflow="ellipsis", ratio=1),
            padding=(0, 1), expand=True,
        )
        for bar in self._open[-1:]:
            drawn = ProgressBar(bar.total, bar.done, width=20, pulse=bar.total is None)
            words = Text(message(bar.text()), "dim")
            picture.add_row(Text(f"  {message(bar.title)}"), drawn, words)
        return picture

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Print a line of progress when there was no output, at increasing intervals."""
        ended = threading.Event()

        def tell() -> None:
            waits = silences()
            silence = next(waits)
            while not ended.wait(max(self._heard + silence - time.monotonic(), 0.01)):
                if time.monotonic() - self._heard >= silence and self._open:
                    bar = self._open[-1]
                    self._say(f"  {bar.title}: {bar.text()}")
                    silence = next(waits)

        self.heard()
        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()
