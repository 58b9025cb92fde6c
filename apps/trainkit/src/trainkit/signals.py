"""Early stop: batch systems announce the end of the time limit by a signal.

Slurm sends SIGTERM before SIGKILL, or any signal earlier by `--signal=B:USR1@120`; a closed
terminal sends SIGHUP. SIGURG is for whoever signals all processes of a job, as Slurm does: those
that have no handler for it, such as torchrun and the file system of an image, it leaves alone.
The handler only sets a flag, because a checkpoint is consistent only between two
steps; the loop reads the flag there, writes the checkpoint and exits with 75.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGURG, signal.SIGINT, signal.SIGHUP)
INTERRUPTED = 130  # exit status


class StopFlag:
    """Context manager that turns `SIGNALS` into a flag; use it in the main thread.

    SIGINT after another stop (Ctrl-C pressed twice) raises KeyboardInterrupt at once: the
    user does not want to wait, and the last checkpoint is intact anyway. A third one ends
    the process wherever it is, also in a library that waits for a lost rank or a disk.

    SIGHUP that is ignored stays so: that is what `nohup` asks for.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}
        self._pipe = self._wakeup = -1

    def __bool__(self) -> bool:
        """Return whether a stop was asked for."""
        return self.received is not None

    @property
    def name(self) -> str:
        """Return the name of the signal that asked for the stop, "no signal" without one."""
        return "no signal" if self.received is None else self.received.name

    def __enter__(self) -> StopFlag:
        reader, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        threading.Thread(target=_end_at_third, args=[reader], daemon=True).start()
        # Python writes the number of each signal there even while the main thread cannot act.
        self._wakeup = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
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
        if kind is KeyboardInterrupt:  # nothing that is left to do is worth waiting for
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._pipe)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)


def _end_at_third(reader: int) -> None:
    """End the process when a third SIGINT is read; return when the pipe is closed."""
    left = 3
    while number := os.read(reader, 1):
        left -= number[0] == signal.SIGINT
        if not left:
            os._exit(INTERRUPTED)
    os.close(reader)
