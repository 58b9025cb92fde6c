"""Measure how long a container takes to start Python, and to import its framework."""

from __future__ import annotations

import os
import re
import statistics
import time
from pathlib import Path

from trimaran import strict
from trimaran.engines import BuiltImage, Engine
from trimaran.images.definition import Image

WARM = 5
"""Number of measured warm starts; one more start before them fills the caches."""

COLD = 3
"""Number of measured cold starts."""

SLOWEST = 5
"""Number of the slowest modules in the profile of an import."""

FRAMEWORKS = ("torch", "tensorflow")
"""The modules whose import time is measured, one for each framework.

Which of them an image contains follows from the short name of the image, such as `torch2.13-cpu`,
which begins with the name of the module.
"""

PROFILE = (
    "import subprocess, sys; subprocess.run([sys.executable, '-X', 'importtime', '-c',"
    " 'import {module}'], stderr=subprocess.STDOUT, check=True)"
)
"""Python program that prints the profile of an import, which Python writes to standard error."""

_LINE = re.compile(r"import time: +([0-9]+) \| +[0-9]+ \| +([A-Za-z0-9_.]+)")


class SlowModule(strict.Model):
    """A module, and the seconds that its import takes without the modules that it imports.

    The seconds include the time to load its own shared libraries.
    """

    module: str
    seconds: float


class Import(strict.Model):
    """The time of the import of a framework in a container.

    Attributes:
        module: the imported module.
        warm: seconds from the start of the engine to the end of a program that only imports it,
            median of `WARM` starts.
        cold: the same after the image was dropped from the page cache, median of `COLD` starts;
            None: the engine has no file that can be dropped.
        slowest: the slowest modules of a warm import.
    """

    module: str
    warm: float
    cold: float | None
    slowest: tuple[SlowModule, ...]


def framework(image: Image) -> str | None:
    """Return the Python module of the framework in a framework image, such as `torch`, or None.

    None: the framework is unknown.
    """
    short = image.short or ""
    return next((module for module in FRAMEWORKS if short.startswith(module)), None)


def imported(engine: Engine, built: BuiltImage, module: str) -> Import:
    """Measure the import of `module`, and profile it."""
    program = f"import {module}"
    return Import(
        module=module, warm=warm(engine, built, program), cold=cold(engine, built, program),
        slowest=slowest(engine.inside(built, ["-c", PROFILE.format(module=module)])),
    )


def warm(engine: Engine, built: BuiltImage, program: str) -> float:
    """Return the median seconds of a container that runs `program`; its files are in the cache."""
    _seconds(engine, built, program)
    return _median([_seconds(engine, built, program) for _ in range(WARM)])


def cold(engine: Engine, built: BuiltImage, program: str) -> float | None:
    """Return the median seconds of a container whose image is not in the page cache.

    Return None if the image is not one file. The engine itself stays in the page cache.
    """
    image = Path(built.reference)
    if not image.is_file():
        return None
    seconds = []
    for _ in range(COLD):
        drop(image)
        seconds.append(_seconds(engine, built, program))
    return _median(seconds)


def drop(path: Path) -> None:
    """Drop a file from the page cache, which needs no rights but reading the file.

    Pages that another process has mapped stay in the cache.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def slowest(profile: str) -> tuple[SlowModule, ...]:
    """Return the slowest modules in the output of `python -X importtime`, the slowest first."""
    found = [(int(microseconds), module) for microseconds, module in _LINE.findall(profile)]
    return tuple(SlowModule(module=module, seconds=round(microseconds / 1e6, 3))
                 for microseconds, module in sorted(found, reverse=True)[:SLOWEST])


def _seconds(engine: Engine, built: BuiltImage, program: str) -> float:
    begun = time.monotonic()
    engine.inside(built, ["-c", program])
    return time.monotonic() - begun


def _median(seconds: list[float]) -> float:
    return round(statistics.median(seconds), 3)
