"""Print progress, errors, tables and verdicts on the terminal, with the library rich."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimaran.cli.progress import Bars
from trimaran.errors import Interrupted, TrimaranError
from trimaran.reporting import Advance
from trimaran.terminal_safety import message
from trimaran.verdict.run_verdict import Outcome, Verdict

NARROWEST = 12
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
    """Standard error without write errors, so that a closed terminal does not end a training."""

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


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to standard output."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    _print_whole(Screen(), table, whole={"name"})


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
