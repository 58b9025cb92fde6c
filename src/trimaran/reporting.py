"""How long work tells the user about itself, without printing: `terminal` implements this.

Modules take a `Reporter` and stay silent by themselves, so that the same code
serves the terminal, `--json` and the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Advance = Callable[[float], None]
"""Called with the amount of work done since the last call, in the unit of the bar."""


class Reporter(Protocol):
    """Receives notes, warnings and progress of long work."""

    def note(self, text: str) -> None:
        """Say one line that the user should see now."""

    def warn(self, text: str) -> None:
        """Say one line about something that went wrong but was survived."""

    def line(self, text: str) -> None:
        """Pass on one line of a child's output that stays readable (training log)."""

    def detail(self, text: str) -> None:
        """Show one line of a child's output with the open bar, until the next one comes."""

    def bar(
        self, description: str, total: float | None, *, unit: str = "", done: float = 0
    ) -> AbstractContextManager[Advance]:
        """Show a bar of `total` (unit "B": bytes; None: unknown); yields its advance function.

        Whatever may take more than a few seconds stands in one; it may hold others.
        """

    def step(self, number: int, of: int, title: str) -> AbstractContextManager[None]:
        """Frame one of the steps of a longer way; its wall time is shown at its end."""


class Silent:
    """A reporter that keeps what it was told: for tests and `--json`."""

    def __init__(self) -> None:
        self.bars: list[str] = []
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.details: list[str] = []

    def note(self, text: str) -> None:
        """Keep `text`."""
        self.notes.append(text)

    def warn(self, text: str) -> None:
        """Keep `text`."""
        self.warnings.append(text)

    def line(self, text: str) -> None:
        """Drop a child's output."""

    def detail(self, text: str) -> None:
        """Keep `text`."""
        self.details.append(text)

    @contextmanager
    def bar(
        self, description: str, total: float | None, *, unit: str = "", done: float = 0
    ) -> Iterator[Advance]:
        """Keep the description, and yield an advance function that does nothing."""
        self.bars.append(description)
        yield lambda amount: None

    @contextmanager
    def step(self, number: int, of: int, title: str) -> Iterator[None]:
        """Frame nothing."""
        yield
