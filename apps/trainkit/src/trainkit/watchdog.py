"""Report and end hanging ranks: a rank that reads from a dead file system blocks all other ranks.

A thread of each rank detects that the training makes no progress. The ranks then write their
current activity and position in the code to files below `--out`, and one rank prints all of them.
After a longer time without progress the ranks end, so that the job ends and frees its nodes. A rank
that writes no file was stopped, or its node has failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from itertools import count, groupby
from pathlib import Path

from trainkit.exits import ExitCode, reported
from trainkit.streams import say

NOTICE = 20.0
"""Seconds without progress after which a hang is reported; longer if earlier waits were long."""

TIMES = 3
"""Factor: a wait is unusual if it exceeds this multiple of the longest earlier wait for the same
activity."""

SLOW = 4
"""Factor by which the patience is multiplied where a step may take long.

The patience is the time without progress after which ranks end. A step may take long in
evaluations, at checkpoints, and when a rank is in an activity for the first time, because code is
compiled and ranks connect then.
"""

BUSY = "busy"
"""Name of a file that a rank creates during a slow activity, so that other ranks wait longer."""

SILENT = "silent: stopped, or its node is gone"
"""Text that is printed in place of the activity of a rank that wrote no file."""

GATHER = 3.0
"""Seconds that a rank waits for the files of other ranks before it prints their activities."""


class Watchdog:
    """The watchdog of one of several ranks; a training of one process is not watched.

    Args:
        rank: this rank.
        size: ranks of the training.
        folder: folder of the files in which ranks describe their activity.
        patience: seconds without progress after which this rank ends; during a slow activity of
            any rank, it ends after `SLOW` times as many seconds. In both cases, a message about
            the hang is printed after `patience` seconds or earlier. If `patience` is 0, ranks are
            not watched.
        end: function that ends the process with an exit status, even if its main thread hangs.
        clock: monotonic clock, in seconds.
        subject: word for the activity of the job, such as training, for the message at the end.
        writers: number of ranks, from rank 0 on, that have a watchdog; None for all ranks.
    """

    def __init__(
        self, rank: int, size: int, folder: Path, patience: float, *,
        end: Callable[[int], object] = os._exit, clock: Callable[[], float] = time.monotonic,
        subject: str = "training", writers: int | None = None,
    ) -> None:
        self._rank, self._size, self._folder = rank, size, folder
        self._writers = size if writers is None else writers
        self._patience, self._end, self._clock = patience, end, clock
        self._subject, self._detail = subject, ""
        self._doing, self._slow, self._since = "starting", True, clock()
        self._longest: dict[str, float] = {}
        self._written = self._told = False
        self._busy = 0.0  # time of the last slow activity of any rank
        self._over = threading.Event()
        self._main = threading.get_ident()

    def __enter__(self) -> Watchdog:
        if self._patience and self._size > 1:
            shutil.rmtree(self._folder, ignore_errors=True)  # left by a killed run
            self._since = self._clock()
            threading.Thread(target=self._watch, daemon=True, name="watchdog").start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def beat(self, doing: str, *, slow: bool = False, detail: str = "") -> None:
        """Record progress and the new activity of this rank.

        Args:
            doing: the activity, one of a few fixed texts; a message about a hang prints it in a
                sentence such as "rank 3 is DOING".
            slow: whether the activity may take long each time, not only the first time.
            detail: any text, such as a size, which that message prints after `doing`.
        """
        now, before = self._clock(), self._longest.get(self._doing)
        # The first wait of each kind is not representative: code is compiled, ranks connect.
        self._longest[self._doing] = 0.0 if before is None else max(before, now - self._since)
        self._doing, self._slow, self._since, self._detail = doing, slow, now, detail

    def _watch(self) -> None:
        every = min(1.0, self._patience / 10)
        before = self._clock()
        while not self._over.wait(every):
            now = self._clock()
            if now - before > every + 5:  # the whole process was suspended
                self._since += now - before
            before = now
            self.look(now)

    def look(self, now: float) -> None:
        """Report an unusual wait, or end the process if the wait is too long.

        Call this method about once a second.
        """
        silent = now - self._since
        if silent < min(NOTICE, self._patience) / 2:
            if self._written:
                self._written = self._told = False
                self._forget()
            return
        if not self._written:
            self._written = True
            self._write()
        slow = self._is_slow()
        if slow:
            self._busy = now
        else:
            silent = now - max(self._since, self._busy)  # the slow activity may have ended just now
        if silent >= self._patience * (SLOW if slow else 1):
            what = f"nothing has moved for {silent:.0f} s, and the {self._subject} ends"
            self._say("ended", reported("rank-lost", what))
            self._end(int(ExitCode.PEER_LOST))
        elif not self._told and silent >= (self._patience if slow else self._unusual()):
            self._told = True
            self._say("noticed", f"nothing has moved for {silent:.0f} s")

    def _is_slow(self) -> bool:
        """Return whether any rank is in an activity that may take long.

        If this rank is in one, create the file `BUSY`, so that the other ranks wait longer, too.
        """
        own = self._slow or self._doing not in self._longest
        busy = self._folder / BUSY
        try:
            if own:
                busy.touch()
            return own or busy.exists()
        except OSError:  # the disk itself may hang
            return own

    def _unusual(self) -> float:
        return min(self._patience, max(NOTICE, TIMES * self._longest.get(self._doing, 0.0)))

    def _say(self, stage: str, what: str) -> None:
        self._write()  # the current position
        time.sleep(min(GATHER, self._patience / 10))
        self._tell(stage, what)

    def _path(self, rank: int) -> Path:
        return self._folder / f"rank-{rank:05}.json"

    def _write(self) -> None:
        said = json.dumps([f"{self._doing} {self._detail}".rstrip(), where(self._main)])
        with contextlib.suppress(OSError):  # the disk itself may hang
            self._folder.mkdir(exist_ok=True)
            self._path(self._rank).write_text(said, encoding="utf-8")

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            self._path(self._rank).unlink()
            for name in ("noticed", BUSY):
                (self._folder / name).unlink(missing_ok=True)

    def _tell(self, stage: str, what: str) -> None:
        """Print `what` and the activities of all ranks, unless another rank has printed them.

        Args:
            stage: "noticed" or "ended": the rank that creates the file with this name prints.
            what: description of the problem, such as "nothing has moved for 60 s".
        """
        try:
            os.close(os.open(self._folder / stage, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
        except OSError:
            pass  # without a working disk, every rank prints
        found = {rank: self._read(rank) for rank in range(self._writers)}
        say(sys.stderr, f"{what}: {summary(found)}\n")

    def _read(self, rank: int) -> tuple[str, str] | None:
        try:
            doing, place = json.loads(self._path(rank).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return str(doing), str(place)


def where(thread: int) -> str:
    """Return the position of a thread in the code: file, line and innermost function."""
    frame = sys._current_frames().get(thread)
    stack = traceback.extract_stack(frame) if frame is not None else []
    if not stack:
        return "unknown position"
    last = stack[-1]
    return f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno} in {last.name}"


def summary(found: dict[int, tuple[str, str] | None]) -> str:
    """Return the activities of all ranks as text, the rarest first.

    `found` maps each rank to its activity and position in the code, or to None if it is silent.
    """
    groups: dict[str, list[int]] = {}
    for rank, said in found.items():
        text = f"{said[0]} ({said[1]})" if said else SILENT
        groups.setdefault(text, []).append(rank)
    order = sorted(groups.items(), key=lambda group: len(group[1]))
    return "; ".join(
        f"rank {spans(ranks)} is {text}" if len(ranks) == 1 else f"ranks {spans(ranks)} are {text}"
        for text, ranks in order
    )


def spans(ranks: Iterable[int]) -> str:
    """Return increasing numbers as a text of ranges, such as "0, 2-7"."""
    steps = count()
    runs = [list(run) for _, run in groupby(ranks, lambda rank: rank - next(steps))]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
