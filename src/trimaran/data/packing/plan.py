"""What a packing is made of: its options, its order, its shards."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from trimaran.data import dataset_json
from trimaran.data.contracts import FormatName, Name
from trimaran.data.formats.records import Kind
from trimaran.data.packing.listing import Sample
from trimaran.errors import UsageError

ORDER_SEED = 20170825
SHARD_SAMPLES = 10_000

_NAME: TypeAdapter[str] = TypeAdapter(Name)

Bad = tuple[str, str]
"""Name of an image, and why it cannot be decoded."""


@dataclass(frozen=True)
class Options:
    """What decides on the bytes.

    Attributes:
        name: of the data set.
        format: how it is packed.
        resize: shorter sides longer than this many pixels are scaled to it (None: as it is).
        quality: of the JPEGs that are then encoded.
        samples: in a shard.

    Raises:
        UsageError: `dataset.json`, which is written last, could not have this name.
    """

    name: str
    format: FormatName
    resize: int | None = None
    quality: int = 95
    samples: int = SHARD_SAMPLES

    def __post_init__(self) -> None:
        try:
            _NAME.validate_python(self.name)
        except ValidationError:
            raise UsageError(
                f"{self.name!r} cannot be the name of a data set",
                hint="it has small letters, digits and '-', and no '-' first",
            ) from None


@dataclass(frozen=True)
class Job:
    """One shard to be made: `chosen` has each sample with its place in the listing."""

    root: Path
    folder: Path
    stem: str
    options: Options
    encoding: str
    skip_bad: bool
    chosen: list[tuple[int, Sample]]
    kind: Kind

    @property
    def split(self) -> str:
        """The split that the shard belongs to."""
        return self.stem.rpartition("-")[0]


@dataclass(frozen=True)
class Done:
    """A finished shard (None: it has no samples), and the images that it could not have."""

    stem: str
    shard: dataset_json.Shard | None
    bad: list[Bad]


def name_of(source: Path) -> str:
    """Return a name for the data set that is packed from the folder `source`."""
    name = re.sub(r"[^a-z0-9]+", "-", source.absolute().name.lower()).strip("-")
    return name or "images"


def shuffled(split: str, count: int) -> list[int]:
    """Return 0..count-1 in an order fixed by `ORDER_SEED`, the same in every Python version."""
    def key(number: int) -> bytes:
        return hashlib.sha256(f"{ORDER_SEED}:{split}:{number}".encode()).digest()

    return sorted(range(count), key=key)
