"""Run tasks in several processes with progress; the processes end together with their parent."""

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
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def run(work: Work[T, R], tasks: Sequence[T], workers: int, advance: Advance) -> Iterator[R]:
    """Yield the results of `work(task, advance)` for all tasks in the order of completion.

    Args:
        work: a function at the top level of a module, so that it can be pickled; it calls its
            second argument with the amount of work done since the last call.
        tasks: the tasks, which must be picklable.
        workers: number of processes; with one process or one task, this process does the work.
        advance: function that is called in this process with the amount of work that the workers
            have done.

    Raises:
        RunError: a worker process was killed.
        Exception: any error of `work`; the other tasks are cancelled.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        yield from (work(task, advance) for task in tasks)
        return
    # A fork of a process with threads (such as a progress bar) may hang.
    context = multiprocessing.get_context("spawn")
    done, stop = context.Value("d", 0.0), context.Event()
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin, initargs=(done, stop)
    ) as pool:
        try:
            waiting = {pool.submit(work, task, _advance) for task in tasks}
            reported = 0.0
            while waiting:
                ended, waiting = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
                now = done.value
                advance(now - reported)
                reported = now
                for future in ended:
                    yield future.result()
            advance(done.value - reported)
        except BrokenProcessPool:
            raise RunError(
                "a worker process was killed", code="worker-killed",
                hint="if the memory was too small, use fewer --workers",
            ) from None
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


class _Stopped(BaseException):
    """The exception that ends the task of a worker process after the pool was cancelled."""


_shared: dict[str, Any] = {}
"""State that all workers share: the amount of work that is `done`, and the signal to `stop`."""


def _begin(done: Any, stop: Any) -> None:
    _shared.update(done=done, stop=stop)
    # The terminal sends Ctrl-C to every process; the parent stops its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the parent process ends: a killed parent cannot stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _advance(amount: float) -> None:
    if _shared["stop"].is_set():
        raise _Stopped
    with _shared["done"].get_lock():
        _shared["done"].value += amount
