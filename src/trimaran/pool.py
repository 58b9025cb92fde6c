"""Work in several processes, with progress, that ends at once when it is stopped or killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from trimaran.errors import RunError
from trimaran.reporting import Advance

T = TypeVar("T")
R = TypeVar("R")
Work = Callable[[T, Advance], R]

_POLL_SECONDS = 0.2


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def run(work: Work[T, R], tasks: Sequence[T], workers: int, advance: Advance) -> Iterator[R]:
    """Yield `work(task, advance)` of each task, as they are finished.

    Args:
        work: a function of a module; it calls its second argument with the amount done.
        tasks: picklable.
        workers: processes; with one, or one task, the work is done in this process.
        advance: gets what the work reports, from this process.

    Raises:
        RunError: a process was killed.
        Exception: what `work` raises; the other tasks are then given up.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        yield from (work(task, advance) for task in tasks)
        return
    # Not forked: a fork of a process with threads (a progress bar) may hang.
    context = multiprocessing.get_context("spawn")
    done, stop = context.Value("d", 0.0), context.Event()
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin, initargs=(done, stop)
    ) as pool:
        try:
            waiting = {pool.submit(work, task, _advance) for task in tasks}
            told = 0.0
            while waiting:
                ended, waiting = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
                now = done.value
                advance(now - told)
                told = now
                for future in ended:
                    yield future.result()
            advance(done.value - told)
        except BrokenProcessPool:
            raise RunError(
                "a working process was killed", hint="too little memory? Use fewer --workers"
            ) from None
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


class _Stopped(BaseException):
    """Ends the work of a process whose result nobody waits for any more."""


_shared: dict[str, Any] = {}
"""Of a working process: `done`, the amount of work of all of them, and `stop`."""


def _begin(done: Any, stop: Any) -> None:
    _shared.update(done=done, stop=stop)
    # Ctrl-C goes to every process of the terminal; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent cannot stop its children, and they would write on."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _advance(amount: float) -> None:
    if _shared["stop"].is_set():
        raise _Stopped
    with _shared["done"].get_lock():
        _shared["done"].value += amount
