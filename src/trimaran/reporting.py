"""The interface by which modules report progress and warnings without printing.

Modules call a `Reporter` and print nothing, so that the same code serves the terminal (which
`terminal` implements), `--json` and the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Advance = Callable[[float], None]
"""A function that advances a progress bar. Its argument is the amount of work since the last call,
in the unit of the bar."""


class Reporter(Protocol):
    """A receiver of notes, warnings and progress."""

    def note(self, text: str) -> None:
        """Show a line of information."""

    def warn(self, text: str) -> None:
        """Show a warning: a problem that does not stop the command."""

    def line(self, text: str) -> None:
        """Show a line of output of a child process permanently (such as a training log)."""

    def detail(self, text: str) -> None:
        """Show a line of a child process's output next to the progress bar, until the next line."""

    def bar(
        self, description: str, total: float | None, *, unit: str = "", done: float = 0
    ) -> AbstractContextManager[Advance]:
        """Show a progress bar and yield its advance function; bars may be nested.

        Args:
            description: title of the bar.
            total: amount of work (None: unknown).
            unit: unit of the amount; "B" means bytes.
            done: amount that is done already.
        """

    def step(self, number: int, of: int, title: str) -> AbstractContextManager[None]:
        """Show the title of a step, and at the end of the `with` block its wall time.

        Args:
            number: number of the step, from 1.
            of: number of all steps.
            title: title of the step.
        """


class Silent:
    """A reporter that stores notes and warnings, for tests and `--json`."""

    def __init__(self) -> None:
        self.bars: list[str] = []
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.details: list[str] = []

    def note(self, text: str) -> None:
        """Store the note `text` in `notes`."""
        self.notes.append(text)

    def warn(self, text: str) -> None:
        """Store the warning `text` in `warnings`."""
        self.warnings.append(text)

    def line(self, text: str) -> None:
        """Ignore the output of a child process."""

    def detail(self, text: str) -> None:
        """Store the detail `text` in `details`."""
        self.details.append(text)

    @contextmanager
    def bar(
        self, description: str, total: float | None, *, unit: str = "", done: float = 0
    ) -> Iterator[Advance]:
        """Store the description, and yield an advance function that does nothing."""
        self.bars.append(description)
        yield lambda amount: None

    @contextmanager
    def step(self, number: int, of: int, title: str) -> Iterator[None]:
        """Do nothing."""
        yield
