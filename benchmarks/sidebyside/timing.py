"""How the programs measure a loader: images per second after a warm-up."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable


def images_per_second(sizes: Iterable[int], *, warmup: int, seconds: float) -> float:
    """Return the rate of an endless stream of batches.

    Args:
        sizes: the number of images of each batch, given when it is ready.
        warmup: batches that do not count: at least as many as are prepared ahead.
        seconds: how long to measure.
    """
    stream = iter(sizes)
    for _ in range(warmup):
        next(stream)
    images, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        images += next(stream)
    return images / passed


def print_rate(rate: float) -> None:
    """Print the line that the runner reads."""
    print(json.dumps({"rate": rate}))
