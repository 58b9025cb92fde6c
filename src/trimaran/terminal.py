"""The terminal: the only module besides `cli` that writes to it. Uses rich throughout."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.control import Control
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.segment import ControlType
from rich.table import Table

from trimaran.errors import Interrupted, TrimaranError
from trimaran.reporting import Advance
from trimaran.verdict import Outcome, Verdict

STYLES: dict[Outcome, str] = {"PASS": "green", "FAIL": "red", "NO REFERENCE": "yellow"}


class Terminal:
    """A `Reporter` that writes to standard error, so that results on standard output stay clean."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._detailed = False

    def note(self, text: str) -> None:
        """Print one line."""
        self._print(escape(text))

    def warn(self, text: str) -> None:
        """Print one line in yellow."""
        self._print(f"[yellow]warning:[/] {escape(text)}")

    def line(self, text: str) -> None:
        """Print one line of a child's output, dimmed."""
        self._print(f"[dim]  {escape(text)}[/]")

    def detail(self, text: str) -> None:
        """Show a line in place of the last one; without a terminal, nothing."""
        if self.console.is_terminal:
            self._wipe()
            self.console.print(
                f"[dim]  {escape(text)}[/]", end="", no_wrap=True, overflow="ellipsis", crop=True
            )
            self._detailed = True

    def _print(self, markup: str) -> None:
        self._wipe()
        self.console.print(markup, soft_wrap=True)

    def _wipe(self) -> None:
        if self._detailed:
            self.console.control(
                Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
            )
            self._detailed = False

    @contextmanager
    def bar(
        self, description: str, total: float | None, *, unit: str = "", done: float = 0
    ) -> Iterator[Advance]:
        """Show a progress bar; without a terminal, one line at the end with the time it took."""
        amount: list[ProgressColumn] = (
            [DownloadColumn(), TransferSpeedColumn()]
            if unit == "B"
            else [MofNCompleteColumn() if total else TextColumn(""), TextColumn(unit)]
        )
        begin = time.monotonic()
        self._wipe()
        with Progress(
            TextColumn("  {task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            *amount,
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as progress:
            task = progress.add_task(escape(description), total=total, completed=int(done))
            yield lambda step: progress.advance(task, step)
        self.note(f"  {description} ({time.monotonic() - begin:.1f} s)")

    @contextmanager
    def step(self, number: int, of: int, title: str) -> Iterator[None]:
        """Frame one of the timed steps of a run."""
        self._print(f"[bold cyan]\\[{number}/{of}][/] [bold]{escape(title)}[/]")
        begin = time.monotonic()
        yield
        self._print(f"[dim]      done in {time.monotonic() - begin:.1f} s[/]")


def show_error(error: TrimaranError) -> None:
    """Print an expected failure and the way out."""
    console = Console(stderr=True, highlight=False)
    label = "[bold yellow]interrupted:[/]" if isinstance(error, Interrupted) else (
        "[bold red]error:[/]"
    )
    console.print(f"{label} {escape(error.message)}", soft_wrap=True)
    if error.hint:
        console.print(f"[bold]hint:[/]  {escape(error.hint)}", soft_wrap=True)


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to standard output."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:  # a name is there to be copied: whole while there is room for it
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console(highlight=False).print(table)


def show_verdict(verdict: Verdict, title: str, notes: Sequence[str]) -> None:
    """Print the verdict table, its reasons, and the one word at the end."""
    console = Console(highlight=False)
    table = Table(title=escape(title), title_justify="left", header_style="bold")
    for column in ("metric", "measured", "accepted", "reference", "verdict"):
        table.add_column(column, justify="right" if column in {"measured", "accepted"} else "left")
    for row in verdict.rows:
        cells = (row.metric, row.measured_text, row.accepted_text, escape(row.basis))
        outcome = f"[{STYLES[row.outcome]}]{row.outcome}[/]" if row.required else "[dim]shown[/]"
        table.add_row(*cells, outcome)
    console.print(table)
    for note in [*verdict.reasons, *notes]:
        console.print(f"  {escape(note)}", soft_wrap=True)
    console.print(f"VERDICT [bold {STYLES[verdict.outcome]}]{verdict.outcome}[/]")

