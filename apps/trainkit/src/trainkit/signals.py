"""Early stop: a batch system announces the end of the time limit with a signal.

Slurm sends SIGTERM before SIGKILL, or any signal earlier with `--signal=B:USR1@120`; a closed
terminal sends SIGHUP. SIGURG is useful if all processes of a job receive the signal, as in Slurm:
processes without a handler, such as torchrun and the file system of an image, ignore it. The
handler only sets a flag, because a checkpoint is consistent only between two steps. Between two
steps the training loop reads the flag and writes the checkpoint, and the app exits with code 75.
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
    """Context manager that sets a flag at each of `SIGNALS`; use it in the main thread.

    A SIGINT after another of these signals (for example Ctrl-C pressed twice) raises
    KeyboardInterrupt at once, because the user does not want to wait, and the last checkpoint is
    intact. A third SIGINT ends the process at any point, even in a library that waits for a lost
    rank or a disk.

    An ignored SIGHUP stays ignored, as `nohup` requires.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}
        self._pipe = self._wakeup = -1

    def __bool__(self) -> bool:
        """Return whether a stop was requested."""
        return self.received is not None

    @property
    def name(self) -> str:
        """The name of the signal that requested the stop, or "no signal" if none was received."""
        return "no signal" if self.received is None else self.received.name

    def __enter__(self) -> StopFlag:
        reader, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        threading.Thread(target=_end_at_third, args=[reader], daemon=True).start()
        # Python writes the number of each signal to the pipe even if the main thread is blocked.
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
        if kind is KeyboardInterrupt:  # the next Ctrl-C ends the process
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._pipe)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)


def _end_at_third(reader: int) -> None:
    """Read the numbers of signals from the pipe `reader`; end the process at the third SIGINT.

    Return when the other end of the pipe is closed.
    """
    left = 3
    while number := os.read(reader, 1):
        left -= number[0] == signal.SIGINT
        if not left:
            os._exit(INTERRUPTED)
    os.close(reader)
