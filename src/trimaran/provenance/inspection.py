"""What a built image amounts to: size, packages, licences, largest items, time to start."""

from __future__ import annotations

import statistics
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pydantic import Field

from trimaran import __version__, files, strict
from trimaran.engines import BuiltImage, Engine, image_contents, require
from trimaran.engines.image_contents import Item
from trimaran.hostfacts import HostFacts, host_facts
from trimaran.images.definition import Image
from trimaran.provenance import licences
from trimaran.reporting import Silent

STARTS = 5
"""How many starts the median is of; one more goes before them, to warm up."""

LARGEST = 10


class Examination(strict.Model):
    """One image, examined on one machine.

    Attributes:
        date: when, in UTC.
        command: what was typed.
        size: of the SIF, or of the image in podman's storage, in bytes.
        unpacked: bytes of all files in it.
        packages: "debian" and "python" -> how many.
        licences: the same -> kind of licence -> how many packages name one of that kind.
        start: seconds from the engine's start to the end of a Python that does nothing,
            median of `STARTS`, warm.
        selftest: what the self-test said, line by line; none where it was not run.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    image: str
    engine: str
    digest: str
    date: str
    trimaran: str
    command: str
    host: HostFacts
    size: int
    unpacked: int
    files: int
    packages: dict[str, int]
    licences: dict[str, dict[str, int]]
    largest: tuple[Item, ...]
    start: float
    selftest: tuple[str, ...] = ()


def examine(engine: Engine, image: Image, *, test: bool = False) -> Examination:
    """Look at the built image of `engine`, and with `test` also run its self-test.

    Raises:
        BuildError: it is not built, its Python does not run, or its self-test fails.
        UsageError: the engine is the host, which has no images.
    """
    built = require(engine, image)
    found, listener = image_contents.of(engine, built), Silent()
    if test:
        engine.test(image, built, listener)
    stated = {
        "debian": [package.licences or package.mentioned for package in found.debian],
        "python": [package.licences for package in found.python],
    }
    return Examination(
        image=image.name, engine=engine.name, digest=found.digest, trimaran=__version__,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), host=host_facts(),
        command=f"trimaran inspect {image.name} --engine {engine.name}",
        size=built.size, unpacked=found.unpacked, files=len(found.files),
        packages={kind: len(those) for kind, those in stated.items()},
        licences={kind: licences.summary(those) for kind, those in stated.items()},
        largest=tuple(found.largest(LARGEST)), start=start_time(engine, built),
        selftest=tuple(listener.details),
    )


def start_time(engine: Engine, built: BuiltImage) -> float:
    """Return the seconds that a container with a Python that does nothing takes, warm."""
    seconds = []
    for _ in range(STARTS + 1):
        begun = time.monotonic()
        engine.inside(built, ["-c", "pass"])
        seconds.append(time.monotonic() - begun)
    return round(statistics.median(seconds[1:]), 3)


def write_evidence(found: Examination, file: Path) -> None:
    """Write `found` to `file`, without the name of the machine.

    Raises:
        UsageError: `file` exists; evidence is never overwritten.
    """
    files.write_evidence(
        file, found.model_dump_json(indent=2, by_alias=True, exclude={"host": {"hostname"}})
    )
