"""Measure the time to import PyTorch: when the ranks of a job start, and in a new process.

This module must not import PyTorch before it measures.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

FRAMEWORK = "torch"
IMAGE_VARIABLES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
"""Variables in which Apptainer gives the path of the image file; in the container, the path can be
missing."""


def first(evict: bool) -> float:
    """Import PyTorch into this process, and return the time of the import in seconds.

    Args:
        evict: whether to remove PyTorch's files from the page cache first; only one rank of each
            node does so. Files that another process has mapped remain in the cache.
    """
    if evict:
        for path in _files():
            uncache(path)
    started = time.perf_counter()
    importlib.import_module(FRAMEWORK)
    return time.perf_counter() - started


def again(seconds: float) -> float | None:
    """Import PyTorch in a new process; return the seconds, or None if it failed or took too long.

    Args:
        seconds: time limit.
    """
    started = time.perf_counter()
    try:
        subprocess.run([sys.executable, "-c", f"import {FRAMEWORK}"], check=True, timeout=seconds,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    return time.perf_counter() - started


def uncache(path: Path) -> None:
    """Remove the pages of a file from the page cache, as far as the system permits it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def _files() -> Iterator[Path]:
    """Yield the files of PyTorch, and the file of the container image if it is visible."""
    found = importlib.util.find_spec(FRAMEWORK)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        for place, _, names in os.walk(folder):
            yield from (Path(place, name) for name in names)
    yield from (Path(os.environ[name]) for name in IMAGE_VARIABLES if os.environ.get(name))
