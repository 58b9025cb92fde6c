"""The plan of a packing: its options, the order of the samples, and the shards to write."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from shards.description import Shard
from shards.kinds import ImageFormat, Kind
from trimaran import strict
from trimaran.data.contracts import Name
from trimaran.data.packing.listing import Sample
from trimaran.data.packing.pictures import Resize
from trimaran.errors import UsageError

ORDER_SEED = 20170825
SHARD_SAMPLES = 10_000
SHARDS_OF_SEQUENCES = 64

_NAME: TypeAdapter[str] = TypeAdapter(Name)

Bad = tuple[str, str]
"""An image that cannot be decoded: its name, and the reason."""


@dataclass(frozen=True)
class Options:
    """The options that determine the bytes of the shards.

    Attributes:
        name: name of the data set.
        format: format of the shards.
        resize: size to which images are scaled; None if images are not scaled.
        quality: JPEG quality of scaled images and of the frames of videos.
        samples: number of samples in a shard; None for 10,000 images, or for 1/64 of the sequences
            of a split. One process writes a shard, so 64 processes can then work on a split.

    Raises:
        UsageError: the name is not allowed in `dataset.json`.
    """

    name: str
    format: ImageFormat
    resize: Resize | None = None
    quality: int = 95
    samples: int | None = None

    def shard_samples(self, count: int, kind: Kind) -> int:
        """Return the number of samples per shard, for a split with `count` samples.

        `kind` states whether the samples are images or sequences.
        """
        if self.samples is not None:
            return self.samples
        return SHARD_SAMPLES if kind.sample == "image" else -(-count // SHARDS_OF_SEQUENCES)

    def __post_init__(self) -> None:
        check_name(self.name)


def check_name(name: str) -> None:
    """Raise UsageError if `name` is not allowed in `dataset.json` as the name of a data set."""
    try:
        _NAME.validate_python(name)
    except ValidationError:
        raise UsageError(
            f"{name!r}: invalid name of a data set", code="name-invalid",
            hint="use lower-case letters, digits and '-', and do not begin with '-'",
        ) from None


@dataclass(frozen=True)
class Job:
    """One shard to write, with all inputs for the process that writes it.

    `stem` is the name of the shard, and `chosen` contains each sample with its index in the
    listing.
    """

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
    """The record of a finished shard.

    It is stored, without `stem`, in the JSON file `.packing/STEM.json`, the note of the shard.

    Attributes:
        stem: name of the shard.
        shard: description of the shard; None if the shard has no samples.
        bad: the images that could not be decoded.
        encoded: number of images that were re-encoded without being scaled.
    """

    stem: str
    shard: Shard | None
    bad: list[Bad]
    encoded: int = 0


def resize_of(text: str) -> Resize:
    """Parse the argument of `--resize`, such as `480` or `128x128`, and return the size.

    Raises:
        UsageError: the argument has another form.
    """
    if re.fullmatch(r"[1-9]\d{0,4}(x[1-9]\d{0,4})?", text) is None:
        raise UsageError(f"--resize: {text!r} is not a size", code="argument-invalid",
                         hint="for example: 480 or 128x128")
    sides = [int(side) for side in text.split("x")]
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def name_of(source: Path) -> str:
    """Return a name for the packed data set, derived from the name of its `source`."""
    name = re.sub(r"[^a-z0-9]+", "-", source.absolute().name.lower()).strip("-")
    return name or "images"


def shuffled(split: str, count: int) -> list[int]:
    """Return the numbers 0 to count-1 in a pseudo-random order.

    The order depends only on `ORDER_SEED`, the split and the count; it is the same on every
    machine.
    """
    def key(number: int) -> bytes:
        return hashlib.sha256(f"{ORDER_SEED}:{split}:{number}".encode()).digest()

    return sorted(range(count), key=key)
