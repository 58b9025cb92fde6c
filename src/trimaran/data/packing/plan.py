"""What a packing is made of: its options, its order, its shards."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from shards.description import Shard
from shards.kinds import FormatName, Kind
from trimaran import strict
from trimaran.data.origins import Name
from trimaran.data.packing.listing import Sample
from trimaran.data.packing.pictures import Resize
from trimaran.errors import UsageError

ORDER_SEED = 20170825
SHARD_SAMPLES = 10_000
SHARDS_OF_SEQUENCES = 64

_NAME: TypeAdapter[str] = TypeAdapter(Name)

Bad = tuple[str, str]
"""Name of an image, and why it cannot be decoded."""


@dataclass(frozen=True)
class Options:
    """What decides on the bytes.

    Attributes:
        name: of the data set.
        format: how it is packed.
        resize: to what images are scaled (None: as they are).
        quality: of the JPEGs that are then encoded, and of the frames of videos.
        samples: in a shard (None: 10,000 images, or so many sequences that a split has 64 shards
            at most, because each shard is the work of one process).

    Raises:
        UsageError: `dataset.json`, which is written last, could not have this name.
    """

    name: str
    format: FormatName
    resize: Resize | None = None
    quality: int = 95
    samples: int | None = None

    def shard_samples(self, count: int, kind: Kind) -> int:
        """Return the samples in each shard of a split that has `count` of this kind."""
        if self.samples is not None:
            return self.samples
        return SHARD_SAMPLES if kind.sample == "image" else -(-count // SHARDS_OF_SEQUENCES)

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


class Done(strict.Model):
    """A finished shard (None: it has no samples), and the images that it could not have.

    `encoded` counts those that were encoded anew though they are not scaled. The shard's note in
    `.packing/` is called by the stem, and has the rest.
    """

    stem: str
    shard: Shard | None
    bad: list[Bad]
    encoded: int = 0


def resize_of(text: str) -> Resize:
    """Return what `--resize` says: `480`, or `128x128`.

    Raises:
        UsageError: it says neither.
    """
    if re.fullmatch(r"[1-9]\d{0,4}(x[1-9]\d{0,4})?", text) is None:
        raise UsageError(f"--resize: {text!r} is no size", hint="for example: 480 or 128x128")
    sides = [int(side) for side in text.split("x")]
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def name_of(source: Path) -> str:
    """Return a name for the data set that is packed from the folder `source`."""
    name = re.sub(r"[^a-z0-9]+", "-", source.absolute().name.lower()).strip("-")
    return name or "images"


def shuffled(split: str, count: int) -> list[int]:
    """Return 0..count-1 in an order fixed by `ORDER_SEED`, the same in every Python version."""
    def key(number: int) -> bytes:
        return hashlib.sha256(f"{ORDER_SEED}:{split}:{number}".encode()).digest()

    return sorted(range(count), key=key)
