"""Early stop: batch systems announce the end of the time limit by a signal.

Slurm sends SIGTERM before SIGKILL, or any signal earlier by `--signal=B:USR1@120`.
The handler only sets a flag, because a checkpoint is consistent only between two
steps; the loop reads the flag there, writes the checkpoint and exits with 75.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopFlag:
    """Context manager that turns `SIGNALS` into a flag; use it in the main thread.

    SIGINT after another stop (Ctrl-C pressed twice) raises KeyboardInterrupt at once:
    the user does not want to wait, and the last checkpoint is intact anyway.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        """Return whether a stop was asked for."""
        return self.received is not None

    @property
    def name(self) -> str:
        """Return the name of the signal that asked for the stop, "no signal" without one."""
        return "no signal" if self.received is None else self.received.name

    def __enter__(self) -> StopFlag:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
