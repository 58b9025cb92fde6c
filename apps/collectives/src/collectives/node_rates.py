"""Rates of one node that need no other node: matrix product, memory, and reads from storage."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from collectives.importing import uncache

ORDERS = {"cuda": (8192,), "cpu": (4096, 2048, 1024, 512)}
"""Kind of device -> orders n of n x n matrices; the largest that fits the time is used."""
GEMM_DTYPES = {"cuda": torch.bfloat16, "cpu": torch.float32}
PILOT_ORDER = 512
ARRAY_BYTES = {"cuda": (1 << 30,), "cpu": (1 << 28, 1 << 26, 1 << 24)}
"""Kind of device -> sizes of an array of the STREAM triad a = b + s c, in bytes.

The largest size that fits memory and time is used. STREAM demands four times the size of the
caches."""
PILOT_BYTES = 1 << 24
REPETITIONS = 3
"""Least number of timed repetitions."""
BLOCK = 8 << 20
"""Size in bytes of one call that reads or writes a file."""


def median_seconds(
    call: Callable[[], object], synchronize: Callable[[], object], seconds: float
) -> float:
    """Repeat `call` for `seconds` after a warm-up, and return the median of its times.

    The warm-up repeats `call` for a tenth of `seconds`. There are at least one untimed call and
    `REPETITIONS` timed calls.
    """
    end = time.perf_counter() + seconds / 10
    while True:
        call()
        synchronize()
        if time.perf_counter() >= end:
            break
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < REPETITIONS or time.perf_counter() < end:
        started = time.perf_counter()
        call()
        synchronize()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def gemm(
    device: torch.device, order: int, seconds: float, synchronize: Callable[[], object]
) -> float:
    """Return the rate of the product of two square matrices, in TFLOP/s.

    A product takes 2 n^3 operations: n^2 results of n multiplications and n additions each (Golub
    and Van Loan, "Matrix Computations", section 1.1.11).
    """
    kind = GEMM_DTYPES[device.type]
    left, right = (torch.randn(order, order, device=device).to(kind) for _ in range(2))
    result = torch.empty(order, order, dtype=kind, device=device)
    each = median_seconds(lambda: torch.mm(left, right, out=result), synchronize, seconds)
    return 2 * order**3 / each / 1e12


def fitting_order(device: torch.device, pilot: float, seconds: float) -> int:
    """Return the largest order for which `REPETITIONS` + 1 products fit into `seconds`.

    If no order fits, return the smallest order.

    Args:
        device: the device.
        pilot: the smallest rate of all ranks in a short test of order `PILOT_ORDER`, in TFLOP/s.
        seconds: time for the products.
    """
    orders = ORDERS[device.type]
    for order in orders:
        if 2 * order**3 / (pilot * 1e12) * (REPETITIONS + 1) <= seconds:
            return order
    return orders[-1]


def triad(
    device: torch.device, size: int, seconds: float, synchronize: Callable[[], object]
) -> float:
    """Return the memory bandwidth of the STREAM triad a = b + s c, in GB/s.

    As STREAM does (McCalpin, https://www.cs.virginia.edu/stream/ref.html), the function counts the
    bytes of three arrays: two are read, one is written. The rate is computed from the median time,
    whereas STREAM reports the best rate.

    Args:
        device: device whose memory is measured; on a CPU, all threads of the rank use the memory.
        size: bytes of each array.
        seconds: time to spend.
        synchronize: function that waits for the device.
    """
    count = size // torch.float32.itemsize
    b, c = (torch.full((count,), value, device=device) for value in (1.0, 2.0))
    a = torch.empty_like(b)
    each = median_seconds(lambda: torch.add(b, c, alpha=3.0, out=a), synchronize, seconds)
    return 3 * count * torch.float32.itemsize / each / 1e9


def fitting_bytes(device: torch.device, room: int, pilot: float, seconds: float) -> int:
    """Return the largest array size for which `REPETITIONS` + 3 triads fit into `seconds`.

    Two of these triads stand for the time to fill the arrays. If no size fits, return the smallest.

    Args:
        device: the device.
        room: largest size of an array in bytes.
        pilot: the smallest bandwidth of all ranks in a short test of `PILOT_BYTES`, in GB/s.
        seconds: time for the triads.
    """
    sizes = ARRAY_BYTES[device.type]
    for size in sizes:
        if size <= room and 3 * size / (pilot * 1e9) * (REPETITIONS + 3) <= seconds:
            return size
    return min(sizes[-1], room)


def write_file(path: Path, size: int, seconds: float) -> None:
    """Write up to `size` random bytes to the disk for at most `seconds`, and uncache the file.

    Raises:
        OSError: the file cannot be written.
    """
    block, end = os.urandom(BLOCK), time.perf_counter() + seconds
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        left = size
        while left > 0 and (left == size or time.perf_counter() < end):
            left -= os.write(handle, block[:left])
        os.fsync(handle)
    finally:
        os.close(handle)
    uncache(path)


def read_file(path: Path, seconds: float) -> float:
    """Read a file in order, for at most `seconds`; return the rate in GB/s.

    Raises:
        OSError: the file cannot be read, or is empty.
    """
    uncache(path)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        buffer, total = bytearray(BLOCK), 0
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            if not (count := os.readv(handle, [buffer])):
                break
            total += count
        elapsed = time.perf_counter() - started
    finally:
        os.close(handle)
    if not total:
        raise OSError(f"{path} is empty")
    return total / elapsed / 1e9
