"""Measure the rate of a data loader: images per second after a warm-up."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable


def images_per_second(sizes: Iterable[int], *, warmup: int, seconds: float) -> float:
    """Return the rate of an endless stream of batches in images per second.

    Args:
        sizes: number of images of each batch, yielded when the batch is ready.
        warmup: batches before the measurement: at least the number of prefetched batches.
        seconds: duration of the measurement.
    """
    stream = iter(sizes)
    for _ in range(warmup):
        next(stream)
    images, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        images += next(stream)
    return images / passed


def print_rate(rate: float) -> None:
    """Print the rate as the JSON line that `runner.printed` reads."""
    print(json.dumps({"rate": rate}))
