"""Examine a built image: size, packages, licences, largest items, start and import time."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pydantic import Field

from trimaran import __version__, architectures, files, strict
from trimaran.architectures import Architecture
from trimaran.engines import Engine, image_contents, require
from trimaran.engines.image_contents import Item
from trimaran.hostfacts import HostFacts, host_facts
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.provenance import licences, starts
from trimaran.provenance.starts import Import
from trimaran.reporting import Silent

LARGEST = 10
"""Number of files and folders that an examination lists as the largest."""


class Examination(strict.Model):
    """The examination of one image on one machine.

    Attributes:
        image: name of the image.
        architecture: processor architecture of the image; evidence without this key is of amd64.
        version: version of the framework in the image; None in evidence without this key.
        engine: name of the engine that has the image.
        digest: digest of the image.
        date: time of the examination in UTC.
        trimaran: version of Trimaran.
        command: the command line that repeats the examination.
        host: facts of the machine.
        size: bytes of the SIF, or of the image in podman's storage.
        unpacked: bytes of all files in the image.
        files: number of files in the image.
        packages: "debian" and "python" -> number of packages.
        licences: "debian" and "python" -> kind of licence -> number of packages with this kind.
        largest: the largest files and folders.
        start: seconds from the start of the engine to the end of an empty Python program, warm: the
            median of `starts.WARM` starts; None: emulated, because such times say nothing.
        start_cold: the same after the image was dropped from the page cache, median of
            `starts.COLD` starts; None: emulated, the engine has no file that can be dropped, or
            evidence without this key.
        imported: time of the import of the framework; None: emulated, no framework, or evidence
            without this key.
        selftest: output lines of the self-test; empty if it was not run.
        horovod: False for an image of AMD that was built without Horovod, otherwise None.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    image: str
    architecture: Architecture = "amd64"
    version: str | None = None
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
    start: float | None
    start_cold: float | None = None
    imported: Import | None = None
    selftest: tuple[str, ...] = ()
    horovod: Literal[False] | None = None

    @property
    def emulated(self) -> bool:
        """Whether the image was examined on a machine of another architecture, by an emulator."""
        return architectures.is_emulated(self.architecture, self.host.architecture)


def examine(engine: Engine, image: Image, *, test: bool = False) -> Examination:
    """Examine the built image of `engine`; with `test`, run its self-test, too.

    Raises:
        BuildError: The image is not built, its Python does not run, or its self-test fails.
        UsageError: The engine is the host engine, which has no images.
    """
    built = require(engine, image)
    module, host = starts.framework(definition.chain(image)[0]), host_facts()
    timed = not architectures.is_emulated(image.architecture, host.architecture)
    contents, listener = image_contents.of(engine, built), Silent()
    if test:
        engine.test(image, built, listener)
    stated = {
        "debian": [package.licences or package.mentioned for package in contents.debian],
        "python": [package.licences for package in contents.python],
    }
    return Examination(
        image=image.name, architecture=image.architecture,
        version=definition.chain(image)[0].version, engine=engine.name, digest=contents.digest,
        trimaran=__version__,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), host=host,
        command=f"trimaran inspect {image.name} --engine {engine.name}"
        f"{architectures.option(image.architecture)}",
        size=built.size, unpacked=contents.unpacked, files=len(contents.files),
        packages={kind: len(names) for kind, names in stated.items()},
        licences={kind: licences.summary(names) for kind, names in stated.items()},
        largest=tuple(contents.largest(LARGEST)),
        start=starts.warm(engine, built, "pass") if timed else None,
        start_cold=starts.cold(engine, built, "pass") if timed else None,
        imported=starts.imported(engine, built, module) if test and module and timed else None,
        selftest=tuple(listener.details),
        horovod=False if image_contents.lacks_horovod(engine, image, built) else None,
    )


def write_evidence(found: Examination, file: Path) -> None:
    """Write the examination `found` to `file`, without the name of the machine.

    Raises:
        UsageError: `file` exists; evidence is never overwritten.
    """
    files.write_evidence(
        file, found.model_dump_json(indent=2, by_alias=True, exclude={"host": {"hostname"}})
    )
