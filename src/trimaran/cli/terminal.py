"""Print progress, errors, tables and verdicts on the terminal, with the library rich."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from trimaran.errors import Interrupted, TrimaranError
from trimaran.reporting import Advance
from trimaran.terminal_safety import message
from trimaran.verdict.metrics import Outcome, Verdict

NARROWEST = 10
"""Smallest width, in characters, of a table column on a narrow terminal."""

STYLES: dict[Outcome, str] = {"PASS": "green", "FAIL": "red", "NO REFERENCE": "yellow"}


class Screen(Console):
    """A console that shows strings safely: no markup, no control codes, and a limited length.

    External text, such as a file name, must be passed as a plain string. `Text` objects are shown
    unchanged, and are only for Trimaran's own text.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text to show for a string, with control codes escaped."""
        return super().render_str(message(text), **options)


class _Lasting:
    """A standard error stream that ignores write errors: a closed terminal ends no training."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Write `text`, and ignore errors."""
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, and ignore errors."""
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()

    def fileno(self) -> int:
        """Return the descriptor of standard error."""
        return sys.stderr.fileno()

    def isatty(self) -> bool:
        """Return whether standard error is a terminal."""
        return sys.stderr is not None and sys.stderr.isatty()


class Terminal:
    """A `Reporter` that writes to standard error, so that standard output has only results."""

    def __init__(self, console: Screen | None = None) -> None:
        self.console = console or Screen(file=_Lasting())
        self._bars = Bars(self.console, self.note)

    def note(self, text: str) -> None:
        """Print one line."""
        self._print(text)

    def warn(self, text: str) -> None:
        """Print one line in yellow."""
        self._print(Text("warning:", "yellow"), text)

    def line(self, text: str) -> None:
        """Print one line of the output of a child process, dimmed."""
        self._print(f"  {text}", style="dim")

    def detail(self, text: str) -> None:
        """Show a line next to the innermost progress bar, in place of the previous line."""
        self._bars.detail(text)

    def _print(self, *parts: str | Text, style: str | None = None) -> None:
        self._bars.heard()
        self.console.print(*parts, style=style, soft_wrap=True)

    def bar(
        self, description: str, total: float | None, *, unit: str = "", done: float = 0
    ) -> AbstractContextManager[Advance]:
        """Show a progress bar or a line every few seconds, and at the end a line with the time.

        Args:
            description: title of the work.
            total: amount of work in `unit`; None: unknown.
            unit: unit of the amounts; "B": bytes.
            done: amount that is done already.
        """
        return self._bars.bar(description, total, unit, done)

    @contextmanager
    def step(self, number: int, of: int, title: str) -> Iterator[None]:
        """Print the title of a step of a run, and at the end of the step its duration."""
        self._print(Text(f"[{number}/{of}]", "cyan"), title, style="bold")
        begin = time.monotonic()
        yield
        self._print(f"      done in {time.monotonic() - begin:.1f} s", style="dim")


def show_error(error: TrimaranError) -> None:
    """Print an expected failure with its code, message and hint."""
    console = Screen(stderr=True)
    label = Text("interrupted:", "bold yellow") if isinstance(error, Interrupted) else (
        Text(f"error[{error.code}]:", "bold red")
    )
    console.print(label, error.message, soft_wrap=True)
    if error.hint:
        console.print(Text("hint: ", "bold"), error.hint, soft_wrap=True)


def show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]
) -> None:
    """Print a table to standard output."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    _print_whole(Screen(), table, whole={"name", "digest"})


def _print_whole(screen: Screen, table: Table, whole: Collection[str]) -> None:
    """Print `table`, and never wrap a cell of the columns `whole`, because users copy these cells.

    If the terminal is too narrow, the lines of the table exceed its width.
    """
    least, most = [], []
    for column in table.columns:
        column.overflow, column.no_wrap = "fold", column.header in whole
        most.append(max(_width(cell) for cell in (column.header, *column.cells)))
        least.append(most[-1] if column.no_wrap else min(most[-1], NARROWEST))
    lines = 3 * len(least) + 1
    if sum(most) + lines <= screen.width:
        widths: Sequence[int | None] = most  # this saves rich from measuring every cell again
    elif sum(least) + lines > screen.width:
        widths, screen.width = least, sum(least) + lines
    else:
        widths = [None] * len(least)
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    screen.print(table)


def _width(cell: object) -> int:
    return max((cell_len(line) for line in message(str(cell)).split("\n")), default=0)


def show_verdict(verdict: Verdict, title: str, notes: Sequence[str]) -> None:
    """Print the table of a verdict, then its reasons and notes, and the outcome."""
    console = Screen()
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in ("metric", "measured", "accepted", "reference", "verdict"):
        table.add_column(column, justify="right" if column in {"measured", "accepted"} else "left")
    for row in verdict.rows:
        outcome = Text(row.outcome, STYLES[row.outcome]) if row.required else Text("shown", "dim")
        table.add_row(row.metric, row.measured_text, row.accepted_text, row.basis, outcome)
    _print_whole(console, table, whole={"metric", "verdict"})
    for note in [*verdict.reasons, *verdict.notes, *notes]:
        console.print(f"  {note}", soft_wrap=True)
    console.print("VERDICT", Text(verdict.outcome, f"bold {STYLES[verdict.outcome]}"))


SILENT_SECONDS = 4.0
"""Number of seconds without output after which a line reports the progress."""

LONGEST_SILENCE = 60.0
"""Maximum number of seconds between two progress lines; the intervals double up to this limit."""


def silences() -> Iterator[float]:
    """Yield the number of seconds without output after which the next progress line is printed."""
    seconds = SILENT_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, LONGEST_SILENCE)


@dataclass
class Bar:
    """The progress of one operation.

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
        """The time since the start of the operation, in seconds."""
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
        say: function that prints a line on the console.
    """

    def __init__(self, console: Console, say: Callable[[str], None]) -> None:
        self._console, self._say = console, say
        self._open: list[Bar] = []
        self._heard = time.monotonic()

    def heard(self) -> None:
        """Record the current time as the time of the last output."""
        self._heard = time.monotonic()

    def detail(self, text: str) -> None:
        """Show an output line of a child process next to the innermost progress bar."""
        if self._open:
            self._open[-1].detail = text.strip()

    @contextmanager
    def bar(self, title: str, total: float | None, unit: str, done: float) -> Iterator[Advance]:
        """Show a bar, and print a line with the elapsed time at its end.

        No line is printed for an operation of unknown length that takes less than a second.
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
        """Print a progress line after each period without output; `silences` yields the periods."""
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
