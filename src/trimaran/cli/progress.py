"""Progress of long work: a bar on a terminal; elsewhere lines, at first every few seconds.

All work that takes long is in a bar, whether its size is known or not, so that no command is silent
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
"""After this time without other output, a line reports the progress."""

LONGEST_SILENCE = 60.0
"""The time between two such lines doubles up to this, so that the log of an hour stays short."""


def silences() -> Iterator[float]:
    """Yield the seconds without output before each further line of progress."""
    seconds = SILENT_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, LONGEST_SILENCE)


@dataclass
class Bar:
    """One piece of work that goes on.

    Attributes:
        total: how much it is, in `unit` ("B": bytes); None: nobody knows.
        done: how much of it is done.
        detail: the last line of a child that does it.
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
        """Add what was done since the last call, by any thread."""
        with self._lock:
            self.done += amount

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.begun

    def text(self) -> str:
        """Return how far it is, in words."""
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
    """The bars that are open on one console, each within the one before.

    Args:
        console: where they are drawn.
        say: prints a line there.
    """

    def __init__(self, console: Console, say: Callable[[str], None]) -> None:
        self._console, self._say = console, say
        self._open: list[Bar] = []
        self._heard = time.monotonic()

    def heard(self) -> None:
        """Note that a line was printed."""
        self._heard = time.monotonic()

    def detail(self, text: str) -> None:
        """Show the last line of a child with the innermost bar."""
        if self._open:
            self._open[-1].detail = text.strip()

    @contextmanager
    def bar(self, title: str, total: float | None, unit: str, done: float) -> Iterator[Advance]:
        """Show a bar; it leaves a line with the time that it took, but for a quick look."""
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
        """Return whether a bar can be drawn: mpirun gives a terminal of no columns."""
        try:
            columns = os.get_terminal_size(self._console.file.fileno()).columns
        except (OSError, ValueError):
            columns = self._console.width
        return self._console.is_terminal and columns > 0

    def _drawn(self) -> Live:
        """Draw the innermost bar for as long as any is open."""
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
        """Print a line of progress where nothing else was printed, less and less often."""
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
