"""Measure the time of training steps and the peak memory, with a simplified session.

The module also has functions that several parts call before a measurement: `strategy` prepares a
training in one process, and `no_compiler` checks whether `torch.compile` can run.
"""

from __future__ import annotations

import gc
import importlib.util
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy

COMPILING = 60.0
"""A network is compiled only if at least these seconds remain until the time limit of the part."""
WARMUP = 3
"""Number of steps on a GPU before the measurement begins; on a CPU, one step is sufficient."""


def strategy(device: str) -> TorchStrategy:
    """Return trainkit's strategy for a training in one process on `device` ("cuda" or "cpu")."""
    return start("single", device="cpu" if device == "cpu" else "gpu")


def no_compiler() -> str | None:
    """Return why `torch.compile` cannot run on a GPU here; None if it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    return None if shutil.which("g++") else "the C++ compiler g++ is not installed"


def synchronize(device: str) -> None:
    """Wait until the device has finished all computations."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(
    step: Callable[[], object], device: str, *, most: float = 4.0, window: int = 10
) -> float:
    """Return the time of a step in seconds: the median of up to three windows of steps.

    No window is started after `most` seconds, except the first.
    """
    if device == "cpu":
        window = 1
    for _ in range(1 if device == "cpu" else WARMUP):
        step()
    synchronize(device)
    found: list[float] = []
    began = time.perf_counter()
    while not found or (len(found) < 3 and time.perf_counter() - began < most):
        start = time.perf_counter()
        for _ in range(window):
            step()
        synchronize(device)
        found.append((time.perf_counter() - start) / window)
    return statistics.median(found)


def release(device: str) -> None:
    """Free the memory of earlier trainings, and reset the peak of the allocated memory."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gib(device: str) -> float | None:
    """Return the peak of the allocated memory since `release`, in GiB; None on a CPU."""
    if device != "cuda":
        return None
    return round(torch.cuda.max_memory_allocated() / 2**30, 2)


class OneStep:
    """A stand-in for the session that an app's training step calls; it is always at step 0."""

    def __init__(self, *_: object) -> None:
        self.progress = SimpleNamespace(epoch=0, step=0, steps_per_epoch=1000, steps_done=0)
        self.stop_asked = False
        self.journal = SimpleNamespace(bad_record=None)

    def next_batch(self, batches: Iterator[Any]) -> Any:
        """Return the next batch."""
        return next(batches)

    def finish_step(self, _samples: int, _sums: Any, _rates: dict[str, float]) -> None:
        """Do nothing; trainkit's `Session` waits for the device here, and reads the losses."""
