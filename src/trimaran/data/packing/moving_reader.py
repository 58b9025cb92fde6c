"""Reader `moving`: sequences in which small grey images fly about in a square and bounce.

The idea is Moving MNIST (Srivastava, Mansimov, Salakhutdinov: Unsupervised Learning of Video
Representations using LSTMs, arXiv:1502.04681, section 4.1). This generator is our own, in whole
numbers only, so that every machine makes the same bytes of the same items:

- Item I of sequence N of a split is chosen by SHA-256 of the text `SEED:SPLIT:N:I`. Its first
  five 32-bit words (big-endian) are, each modulo the number of choices: which item of the source
  file; its column and row in frame 0; its velocity along columns and rows, in pixels a frame,
  counted from -speed. (With both at 0 it flies along both at `speed`: nothing stands still.)
- It bounces where it touches a wall: with `room` = side - width of the item, the column in frame
  T is that of a triangle wave: (column + T velocity) mod (2 room), and 2 room minus that where
  it is more than room. Rows alike.
- Where items overlap the lighter pixel is seen; the ground is black.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from trimaran import strict
from trimaran.data import contracts
from trimaran.data.contracts import OfArrays, OfSequences
from trimaran.data.origins import FileName, Name, Size
from trimaran.data.packing import idx
from trimaran.data.packing.labelled_idx import Images
from trimaran.data.splits import Counted
from trimaran.errors import RunError

if TYPE_CHECKING:
    from PIL import Image


class Motion(strict.Model):
    """How items move, all in whole pixels."""

    side: Annotated[Size, Field(description="of a frame, which is square")]
    frames: Annotated[Size, Field(description="of a sequence")]
    items: Annotated[Size, Field(description="in a sequence")]
    speed: Annotated[Size, Field(description="at most, along each side, from frame to frame")]
    seed: Annotated[int, Field(ge=0)]


class MovingSplit(Counted):
    """Which IDX file holds the items that move in the sequences of one split."""

    images: FileName


class Moving(OfSequences, OfArrays):
    """Sequences in which the images of another data set move; files and sources are its own."""

    reader: Literal["moving"]
    from_: Name = Field(alias="from")
    motion: Motion
    splits: dict[Name, MovingSplit] = Field(min_length=1)

    def used(self) -> set[str]:
        """Return the names of the files: those of the other data set, labels too."""
        return {split.images for split in self.splits.values()} | set(self.files)

    @model_validator(mode="before")
    @classmethod
    def _taken_over(cls, content: object) -> object:
        if not isinstance(content, dict) or not isinstance(content.get("from"), str):
            return content
        if given := sorted({"files", "sources"} & set(content)):
            raise ValueError(f"{' and '.join(given)}: are those of {content['from']}")
        other = strict.load(Images, contracts.file_of(content["from"]))
        return {**content, "files": other.files, "sources": other.sources}

    def read(self, raw: Path, split: str) -> Scenes:
        """Return the sequences of one split."""
        return read(self, raw, split)


@dataclass(frozen=True)
class Flight:
    """How one item moves along one axis: all in pixels, `velocity` a frame."""

    begin: int
    velocity: int
    room: int

    def at(self, frame: int) -> int:
        """Return where it is in `frame`, from 0 to `room`."""
        if not self.room:
            return 0
        unfolded = (self.begin + frame * self.velocity) % (2 * self.room)
        return min(unfolded, 2 * self.room - unfolded)


@dataclass(frozen=True)
class Scenes:
    """The sequences of one split: as `Samples` are."""

    name: str
    motion: Motion
    count: int
    items: idx.Array

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames, height and width."""
        return self.motion.frames, self.motion.side, self.motion.side

    def __len__(self) -> int:
        return self.count

    def labels(self, number: int) -> tuple[int, ...]:
        """Return no classes."""
        return ()

    def frames(self, number: int) -> Iterator[Image.Image]:
        """Yield the frames of one sequence."""
        from PIL import Image, ImageChops  # as in `idx`

        flying = [self.flight(number, item) for item in range(self.motion.items)]
        for at in range(self.motion.frames):
            frame = Image.new("L", (self.motion.side, self.motion.side))
            for image, across, down in flying:
                layer = Image.new("L", frame.size)
                layer.paste(image, (across.at(at), down.at(at)))
                frame = ImageChops.lighter(frame, layer)
            yield frame

    def flight(self, number: int, item: int) -> tuple[Image.Image, Flight, Flight]:
        """Return what flies as `item` of sequence `number`, along columns and along rows."""
        text = f"{self.motion.seed}:{self.name}:{number}:{item}"
        which, *places = struct.unpack(">5I", hashlib.sha256(text.encode()).digest()[:20])
        image = self.items.image(which % self.items.shape[0])
        speed = self.motion.speed
        across, down = (word % (2 * speed + 1) - speed for word in places[2:])
        if across == down == 0:
            across = down = speed
        rooms = [self.motion.side - side for side in image.size]
        begins = [word % (room + 1) for word, room in zip(places[:2], rooms, strict=True)]
        return image, Flight(begins[0], across, rooms[0]), Flight(begins[1], down, rooms[1])

    def histogram(self) -> list[int]:
        """Return how often each grey value is in all frames."""
        counts = [0] * 256
        for number in range(len(self)):
            for frame in self.frames(number):
                counts = [sum(pair) for pair in zip(counts, frame.histogram(), strict=True)]
        return counts


def read(contract: Moving, raw: Path, name: str) -> Scenes:
    """Return the sequences of one split, of the items in its file in `raw`.

    Raises:
        RunError: it is no IDX file of images, or they are larger than the frames.
    """
    split, motion = contract.splits[name], contract.motion
    items = idx.read_images(raw / split.images)
    if max(items.shape[1:]) > motion.side:
        raise RunError(
            f"{raw / split.images} holds images of {items.shape[2]}x{items.shape[1]} pixels,"
            f" which do not fit into frames of {motion.side}x{motion.side}"
        )
    return Scenes(name, motion, split.samples, items)


MODEL = Moving
