"""The records of built and pulled images, and the check of an image against its record.

A SIF is intact if it has the SHA-256 in its record. It is hashed before it is run and before its
content is described. A listing of images does not hash SIFs, because that would read gigabytes. It
accepts a file that has the size in its record and a `ctime` older than the record; no program can
set the `ctime`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from trimaran import paths
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage
from trimaran.engines.commands import MOMENT
from trimaran.errors import BuildError
from trimaran.files import set_aside, sha256, write_atomic
from trimaran.images import content_hash, definition
from trimaran.images.definition import Image
from trimaran.parsing import Malformed, parse_json
from trimaran.reporting import Advance, Reporter


@dataclass(frozen=True)
class History:
    """The origin of an image: its definition, its base image, and the date of the build.

    Attributes:
        content: hash (`content_of`) of the definition that the image was built from.
        built: date and time of the build or of the pull, in UTC.
        base_name: name of the base image.
        base_digest: digest of the base image.
        origin: `HOST[:PORT]/NAMESPACE/IMAGE@DIGEST` of a pulled image; None: the image was built on
            this machine.
        architecture: architecture of the image; records of older versions, which do not state it,
            are of images for amd64.
    """

    content: str
    built: str
    base_name: str
    base_digest: str
    origin: str | None = None
    architecture: Architecture = "amd64"


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True)
class Record(History, BuiltImage):
    """The record of an image: a JSON file in the folder of the images."""

    digest: str

    @property
    def path(self) -> Path:
        """The path of the JSON file that stores this record of an image."""
        return paths.cache("images", f"{self.name}-{self.inputs[:12]}.{self.engine}.json")


_RECORD = TypeAdapter(Record)


def inputs_of(content: str, under: str) -> str:
    """Return the hash over all inputs of an image: its definition, and the image it is built on.

    Args:
        content: hash of the definition (`content_of`).
        under: for a framework image, the digest of its base image. For an app image, the hash of
            the inputs of its framework image, and not its digest: two builds from equal inputs have
            different dates and digests.
    """
    return hashlib.sha256(f"{content}\n{under}".encode()).hexdigest()


def save(record: Record) -> None:
    """Write the record, which marks the image as complete, with a checksum of its content."""
    record.path.parent.mkdir(parents=True, exist_ok=True)
    content = asdict(record)
    write_atomic(
        record.path, json.dumps({**content, CHECKSUM: _checksum(content)}, indent=1) + "\n")


CHECKSUM = "checksum"
"""Key of a record: SHA-256 of its other keys, without `reference`, which changes with the cache.

Records of older versions do not have it.
"""


def _checksum(content: Mapping[str, object]) -> str:
    covered = {key: value for key, value in content.items() if key != "reference"}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def pulled(
    name: str, engine: str, reference: str, digest: str, *, content: str, size: int, origin: str,
    architecture: Architecture,
) -> BuiltImage:
    """Save the record of a pulled image and return the image."""
    inputs = digest.removeprefix("sha256:")  # the inputs of a pulled image are unknown
    record = Record(
        name=name, engine=engine, reference=reference, digest=digest, content=content,
        inputs=inputs, built=datetime.now(timezone.utc).strftime(MOMENT),
        base_name="unknown", base_digest="unknown", size=size, origin=origin,
        architecture=architecture,
    )
    save(record)
    return record


def records(image: Image, engine: str, digest: str | None = None) -> list[Record]:
    """Return the records of matching images, the newest first.

    With `digest`, the images with this digest match, even if the definition has changed since.
    Otherwise, the images of the current definition match.
    """
    content = None if digest else content_hash.content_of(image)
    return [
        record for record in all_records(image, engine)
        if (record.digest == digest if digest else record.content == content)
    ]


def built_for(image: Image, engine: str) -> set[Architecture]:
    """Return the architectures for which an image of the current definition is recorded."""
    return {
        architecture for architecture in definition.chain(image)[0].architectures
        if records(definition.on(image, architecture), engine)
    }


def all_records(image: Image, engine: str) -> list[Record]:
    """Return the records of all images of this name, the newest first."""
    found = [
        record for _, record in every(f"{image.name}-*.{engine}.json")
        if record.name == image.name
    ]
    return sorted(found, key=lambda record: record.built, reverse=True)


def record_of(file: Path) -> Record | None:
    """Return the record of the image file `file`, or None if there is no record."""
    for _, record in every():
        if Path(record.reference).resolve() == file.resolve():
            return record
    return None


def architecture_of(built: BuiltImage) -> Architecture | None:
    """Return the recorded architecture of an image.

    Return None for an engine that does not record its images, such as the host engine.
    """
    return built.architecture if isinstance(built, Record) else None


def every(pattern: str = "*.json") -> Iterator[tuple[Path, Record]]:
    """Yield the path and the content of each readable record, in the order of the paths."""
    for path in sorted(paths.cache("images").glob(pattern)):
        record = _read(path)
        if record is not None:
            yield path, record


def _read(path: Path) -> Record | None:
    """Return the record in the file `path`.

    Return None if it is unreadable, was changed, or describes another image.
    """
    try:
        content = parse_json(path.read_bytes())
        checksum = content.pop(CHECKSUM, None) if isinstance(content, dict) else None
        record = _RECORD.validate_json(json.dumps(content))
    except (OSError, Malformed, ValidationError):
        return None
    intact = checksum is None or checksum == _checksum(content)
    return record if intact and record.path.name == path.name else None


def broken(image: Image, engine: str) -> list[Path]:
    """Return the paths of the records of `image` that cannot be read."""
    found = paths.cache("images").glob(f"{image.name}-*.{engine}.json")
    # A hash follows the name. The name of another image may begin with this name.
    return sorted(
        path for path in found
        if len(path.name) == len(f"{image.name}-{12 * '0'}.{engine}.json") and not _read(path)
    )


def damage(
    record: Record, *, thorough: bool = True, advance: Advance = lambda amount: None
) -> str | None:
    """Return a description of the damage to the recorded SIF, or None if it is intact.

    Args:
        record: the record of an image that is a file.
        thorough: hash the SIF even if its `ctime` is older than the record.
        advance: function that is called with the number of bytes that were hashed.
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
    """Rename the damaged SIF of `record`, and the record; print the text `fault` as a warning.

    Raises:
        BuildError: a file cannot be renamed.
    """
    sif = Path(record.reference)
    try:
        if os.path.lexists(sif):
            fault += f"; renamed to {set_aside(sif).name}"
        set_aside(record.path)
    except OSError as error:
        raise BuildError(f"{fault}; it cannot be renamed: {error.strerror}",
                         code="image-damaged", hint=f"remove {sif}") from error
    reporter.warn(fault)


def move_broken(image: Image, engine: str, reporter: Reporter) -> None:
    """Rename the records of `image` that cannot be read, and print a warning for each."""
    for path in broken(image, engine):
        reporter.warn(f"{path} is damaged; renamed to {set_aside(path).name}")
