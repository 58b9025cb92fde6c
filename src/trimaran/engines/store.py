"""The records beside built and pulled images: what each is, where, and whether it still is.

A SIF is intact when its bytes have the hash of its record. All that runs it, or says something of
its content, hashes it. A listing must not read gigabytes: there a file counts as intact that has
not been touched since its record was written (its `ctime`, which nobody can set, and its size);
any other one is hashed there, too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from trimaran import paths
from trimaran.engines import BuiltImage
from trimaran.engines.commands import MOMENT
from trimaran.errors import BuildError
from trimaran.files import set_aside, sha256, write_atomic
from trimaran.images import identity
from trimaran.images.bases import Base
from trimaran.images.definition import Image
from trimaran.reporting import Advance, Reporter


@dataclass(frozen=True)
class History:
    """How an image was made.

    Attributes:
        content: `identity.content_of` of the definition that the image was built from.
        built: date and time of the build or of the pull, in UTC.
        base_name: name of the base image.
        base_digest: digest of the base image.
        origin: `HOST[:PORT]/NAMESPACE/IMAGE@DIGEST` of a pulled image; None: built here.
    """

    content: str
    built: str
    base_name: str
    base_digest: str
    origin: str | None = None


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True)
class Record(History, BuiltImage):
    """The record of an image: a JSON file in the folder of the images."""

    digest: str

    @property
    def path(self) -> Path:
        """Where it lies."""
        return paths.cache("images", f"{self.name}-{self.inputs[:12]}.{self.engine}.json")


_RECORD = TypeAdapter(Record)


def inputs_of(content: str, base: Base, below: BuiltImage | None) -> str:
    """Return the hash over everything that decides what an image of this `content` becomes.

    Of the framework image below these are its own inputs, not its digest: two builds of
    equal inputs differ in their dates.
    """
    under = below.inputs if below else base.digest
    return hashlib.sha256(f"{content}\n{under}".encode()).hexdigest()


def save(record: Record) -> None:
    """Write the record; its presence says that the image is whole."""
    record.path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(record.path, json.dumps(asdict(record), indent=1) + "\n")


def pulled(
    name: str, engine: str, reference: str, digest: str, *, content: str, size: int, origin: str
) -> BuiltImage:
    """Save the record of a pulled image and return the image."""
    inputs = digest.removeprefix("sha256:")  # what went into it is its publisher's knowledge
    record = Record(
        name=name, engine=engine, reference=reference, digest=digest, content=content,
        inputs=inputs, built=datetime.now(timezone.utc).strftime(MOMENT),
        base_name="unknown", base_digest="unknown", size=size, origin=origin,
    )
    save(record)
    return record


def records(image: Image, engine: str, digest: str | None = None) -> list[Record]:
    """Return the records of images, the newest first: with `digest`, or else of the current
    definition.

    What has the right digest is the right image, whatever the definition has become since.
    """
    content = None if digest else identity.content_of(image)
    return [
        record for record in all_records(image, engine)
        if (record.digest == digest if digest else record.content == content)
    ]


def all_records(image: Image, engine: str) -> list[Record]:
    """Return the records of all images of this name, the newest first."""
    found = [
        record for _, record in every(f"{image.name}-*.{engine}.json")
        if record.name == image.name
    ]
    return sorted(found, key=lambda record: record.built, reverse=True)


def record_of(file: Path) -> Record | None:
    """Return the record of the image that lies in this file, if it is one of the cache."""
    for _, record in every():
        if Path(record.reference).resolve() == file.resolve():
            return record
    return None


def every(pattern: str = "*.json") -> Iterator[tuple[Path, Record]]:
    """Yield all records with their files, in the order of their names."""
    for path in sorted(paths.cache("images").glob(pattern)):
        record = _read(path)
        if record is not None:
            yield path, record


def _read(path: Path) -> Record | None:
    try:
        return _RECORD.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def broken(image: Image, engine: str) -> list[Path]:
    """Return the records of the image that cannot be read."""
    found = paths.cache("images").glob(f"{image.name}-*.{engine}.json")
    # What follows the name is a hash: another image's name may begin with this one.
    return sorted(
        path for path in found
        if len(path.name) == len(f"{image.name}-{12 * '0'}.{engine}.json") and not _read(path)
    )


def damage(
    record: Record, *, thorough: bool = True, advance: Advance = lambda amount: None
) -> str | None:
    """Return what is wrong with the SIF of `record`, or None where it is intact.

    Args:
        record: of an image that is a file.
        thorough: hash it, even if it has not been touched since it was recorded.
        advance: gets the bytes that were hashed.
    """
    sif = Path(record.reference)
    try:
        about = sif.stat()
        touched = about.st_ctime_ns > record.path.stat().st_mtime_ns
        if about.st_size == record.size and not touched and not thorough:
            return None
        found = f"sha256:{sha256(sif, advance)}"
    except OSError as error:
        return f"{sif}: expected {record.digest}, found none: {error.strerror}"
    if found == record.digest:
        return None
    return f"{sif} is damaged: expected {record.digest}, found {found}"


def move_damaged(record: Record, fault: str, reporter: Reporter) -> None:
    """Say what is wrong with the SIF of `record`, and set both aside.

    Raises:
        BuildError: they may not be renamed.
    """
    sif = Path(record.reference)
    try:
        if os.path.lexists(sif):
            fault += f"; set aside as {set_aside(sif).name}"
        set_aside(record.path)
    except OSError as error:
        raise BuildError(f"{fault}; it cannot be set aside: {error.strerror}") from error
    reporter.warn(fault)


def move_broken(image: Image, engine: str, reporter: Reporter) -> None:
    """Set the records of `image` aside that cannot be read, and say so."""
    for path in broken(image, engine):
        reporter.warn(f"{path} is damaged; set aside as {set_aside(path).name}")
