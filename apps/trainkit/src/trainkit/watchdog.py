"""Where ranks hang: one that reads from a dead file system holds up all others, without a word.

Each rank has a thread that notices when its training makes no progress. The ranks then write down,
below `--out`, what they are doing and where in the code; one of them tells it for all. When nothing
has moved for long, they end, so that the job ends and its nodes are free. A rank that writes
nothing was stopped, or its node is gone.
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

from trainkit.exits import ExitCode
from trainkit.streams import say

NOTICE = 20.0
"""Seconds without progress after which it is told, but for a training whose steps take longer."""

TIMES = 3
"""As many of the longest waits of the same kind are no reason yet to say anything."""

SLOW = 4
"""As many times the patience for what may take long: the first wait of each kind, in which code is
compiled and ranks meet, evaluations and checkpoints."""

BUSY = "busy"
"""A file while some rank does what may take long: the others wait for it, and are not to blame."""

GATHER = 3.0
"""Seconds in which ranks that noticed at the same time have written what they do."""


class Watchdog:
    """Watches one rank of several; a single process is left alone.

    Args:
        rank: this one.
        size: ranks of the training.
        folder: where ranks write what they do while nothing moves.
        patience: seconds without progress after which it is told at the latest, and the rank
            ends, but where it, or another one, does what may take long; 0: it never does.
        end: ends the process with an exit status, whatever its main thread does.
        clock: seconds that only go up.
    """

    def __init__(
        self, rank: int, size: int, folder: Path, patience: float, *,
        end: Callable[[int], object] = os._exit, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rank, self._size, self._folder = rank, size, folder
        self._patience, self._end, self._clock = patience, end, clock
        self._doing, self._slow, self._since = "starting", True, clock()
        self._longest: dict[str, float] = {}
        self._written = self._told = False
        self._busy = 0.0  # when some rank was last seen to do what may take long
        self._over = threading.Event()
        self._main = threading.get_ident()

    def __enter__(self) -> Watchdog:
        if self._patience and self._size > 1:
            shutil.rmtree(self._folder, ignore_errors=True)  # of a part that was killed
            self._since = self._clock()
            threading.Thread(target=self._watch, daemon=True, name="watchdog").start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def beat(self, doing: str, *, slow: bool = False) -> None:
        """Say what the rank does from now on, in words that follow "is": there is progress.

        Args:
            doing: one of few kinds of waits.
            slow: it may take long at any time.
        """
        now, before = self._clock(), self._longest.get(self._doing)
        # The first wait of a kind says nothing about the others.
        self._longest[self._doing] = 0.0 if before is None else max(before, now - self._since)
        self._doing, self._slow, self._since = doing, slow, now

    def _watch(self) -> None:
        every = min(1.0, self._patience / 10)
        before = self._clock()
        while not self._over.wait(every):
            now = self._clock()
            if now - before > every + 5:  # the whole process was asleep, and is not to blame
                self._since += now - before
            before = now
            self.look(now)

    def look(self, now: float) -> None:
        """Tell of a wait that is unusual, and end one that is hopeless; once a second or so."""
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
            silent = now - max(self._since, self._busy)  # what was waited for may only now be over
        if silent >= self._patience * (SLOW if slow else 1):
            self._say("ended", f"nothing has moved for {silent:.0f} s, and the training ends")
            self._end(int(ExitCode.PEER_LOST))
        elif not self._told and silent >= (self._patience if slow else self._unusual()):
            self._told = True
            self._say("noticed", f"nothing has moved for {silent:.0f} s")

    def _is_slow(self) -> bool:
        """Return whether some rank does what may take long; let the others know if it is this."""
        own = self._slow or self._doing not in self._longest
        busy = self._folder / BUSY
        try:
            if own:
                busy.touch()
            return own or busy.exists()
        except OSError:  # the disk may be what hangs
            return own

    def _unusual(self) -> float:
        return min(self._patience, max(NOTICE, TIMES * self._longest.get(self._doing, 0.0)))

    def _say(self, stage: str, what: str) -> None:
        self._write()  # where it is by now
        time.sleep(min(GATHER, self._patience / 10))
        self._tell(stage, what)

    def _path(self, rank: int) -> Path:
        return self._folder / f"rank-{rank:05}.json"

    def _write(self) -> None:
        said = json.dumps([self._doing, where(self._main)])
        with contextlib.suppress(OSError):  # the disk may be what hangs
            self._folder.mkdir(exist_ok=True)
            self._path(self._rank).write_text(said, encoding="utf-8")

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            self._path(self._rank).unlink()
            for name in ("noticed", BUSY):
                (self._folder / name).unlink(missing_ok=True)

    def _tell(self, stage: str, what: str) -> None:
        """Say what each rank does, if no other rank has said it before."""
        try:
            os.close(os.open(self._folder / stage, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
        except OSError:
            pass  # nobody can say who speaks: all do
        found = {rank: self._read(rank) for rank in range(self._size)}
        say(sys.stderr, f"{what}: {summary(found)}\n")

    def _read(self, rank: int) -> tuple[str, str] | None:
        try:
            doing, place = json.loads(self._path(rank).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return str(doing), str(place)


def where(thread: int) -> str:
    """Return where in the code a thread is: file, line and function of its innermost call."""
    frame = sys._current_frames().get(thread)
    stack = traceback.extract_stack(frame) if frame is not None else []
    if not stack:
        return "nobody knows where"
    last = stack[-1]
    return f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno} in {last.name}"


def summary(found: dict[int, tuple[str, str] | None]) -> str:
    """Return who does what, those that fewest do first; None: a rank has said nothing."""
    groups: dict[str, list[int]] = {}
    for rank, said in found.items():
        text = f"{said[0]} ({said[1]})" if said else "silent: stopped, or its node is gone"
        groups.setdefault(text, []).append(rank)
    order = sorted(groups.items(), key=lambda group: len(group[1]))
    return "; ".join(
        f"rank {spans(ranks)} is {text}" if len(ranks) == 1 else f"ranks {spans(ranks)} are {text}"
        for text, ranks in order
    )


def spans(ranks: Iterable[int]) -> str:
    """Return numbers in rising order as people write them: 0, 2-7."""
    steps = count()
    runs = [list(run) for _, run in groupby(ranks, lambda rank: rank - next(steps))]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
