"""Reader `moving`: generate sequences in which small grey images move in a square and bounce.

The idea is Moving MNIST (Srivastava, Mansimov, Salakhutdinov: Unsupervised Learning of Video
Representations using LSTMs, arXiv:1502.04681, section 4.1). This generator is our own. It uses
whole numbers only, so that every machine generates the same bytes:

- The SHA-256 of the text `SEED:SPLIT:N:I` determines item I of sequence N of a split. Its first
  five 32-bit words (big-endian), each modulo the number of choices, are: the index of the image in
  the source file; the column and row in frame 0; and the velocity along columns and rows in pixels
  per frame, counted from -speed. (If both velocities are 0, both become `speed`, so that every
  item moves.)
- An item bounces off the walls. With `room` = side - width of the item, its column in frame T is
  x = (column + T velocity) mod (2 room), or 2 room - x if x is larger than room (a triangle wave).
  The same holds for rows.
- Where items overlap, the lighter pixel is visible; the background is black.
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
from trimaran.data.contracts import Counted, FileName, Name, OfArrays, OfSequences, Size
from trimaran.data.packing import idx
from trimaran.data.packing.idx import Images
from trimaran.errors import RunError

if TYPE_CHECKING:
    from PIL import Image


class Motion(strict.Model):
    """The parameters of generated sequences: size, length, number of images, speed and seed."""

    side: Annotated[Size, Field(description="side of a square frame, in pixels")]
    frames: Annotated[Size, Field(description="number of frames of a sequence")]
    items: Annotated[Size, Field(description="number of items in a sequence")]
    speed: Annotated[Size, Field(description="maximum along each axis, in pixels per frame")]
    seed: Annotated[int, Field(ge=0)]


class MovingSplit(Counted):
    """A split, and the name of an IDX file; its images move in the sequences of the split."""

    images: FileName


class Moving(OfSequences, OfArrays):
    """The data contract of sequences in which the images of another data set (`from`) move.

    This contract gets the files and the sources from the contract of the other data set.
    """

    reader: Literal["moving"]
    from_: Name = Field(alias="from")
    motion: Motion
    splits: dict[Name, MovingSplit] = Field(min_length=1)

    def used(self) -> set[str]:
        """Return the names of all files to download.

        They are the files of the data set `from`, whose images move in the sequences.
        """
        return {split.images for split in self.splits.values()} | set(self.files)

    @model_validator(mode="before")
    @classmethod
    def _taken_over(cls, content: object) -> object:
        if not isinstance(content, dict) or not isinstance(content.get("from"), str):
            return content
        if given := sorted({"files", "sources"} & set(content)):
            raise ValueError(f"{' and '.join(given)}: not allowed, as {content['from']} has them")
        other = strict.load(Images, contracts.file_of(content["from"]))
        return {**content, "files": other.files, "sources": other.sources}

    def read(self, raw: Path, split: str) -> Scenes:
        """Return the sequences of one split; the images that move in them are read from `raw`.

        Raises:
            RunError: the file is not an IDX file of images, or the images are larger than the
                frames.
        """
        of, side = self.splits[split], self.motion.side
        items = idx.read_images(raw / of.images)
        if max(items.shape[1:]) > side:
            raise RunError(
                f"{raw / of.images} contains images of {items.shape[2]}x{items.shape[1]} pixels,"
                f" which do not fit into frames of {side}x{side}", code="data-mismatch",
                hint="use smaller images, or increase motion.side in the contract",
            )
        return Scenes(split, self.motion, of.samples, items)


@dataclass(frozen=True)
class Flight:
    """The motion of one image along one axis, with reflection at the walls.

    `begin` is the position in frame 0, and `room` is the largest position, both in pixels.
    `velocity` is in pixels per frame.
    """

    begin: int
    velocity: int
    room: int

    def at(self, frame: int) -> int:
        """Return the position of the image in frame `frame`, in pixels from 0 to `room`."""
        if not self.room:
            return 0
        unfolded = (self.begin + frame * self.velocity) % (2 * self.room)
        return min(unfolded, 2 * self.room - unfolded)


@dataclass(frozen=True)
class Scenes:
    """The sequences of one split, generated on demand; implements `Samples`."""

    name: str
    motion: Motion
    count: int
    items: idx.Array

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of frames, height and width in pixels."""
        return self.motion.frames, self.motion.side, self.motion.side

    @property
    def channels(self) -> Literal[1, 3]:
        """The number of colour channels of a frame: always 1, because the images are grey."""
        return 1

    def __len__(self) -> int:
        return self.count

    def labels(self, number: int) -> tuple[int, ...]:
        """Return an empty tuple: sequences have no classes."""
        return ()

    def frames(self, number: int) -> Iterator[Image.Image]:
        """Yield the frames of the sequence `number`."""
        from PIL import Image, ImageChops  # slow to import

        flying = [self.flight(number, item) for item in range(self.motion.items)]
        for at in range(self.motion.frames):
            frame = Image.new("L", (self.motion.side, self.motion.side))
            for image, across, down in flying:
                layer = Image.new("L", frame.size)
                layer.paste(image, (across.at(at), down.at(at)))
                frame = ImageChops.lighter(frame, layer)
            yield frame

    def flight(self, number: int, item: int) -> tuple[Image.Image, Flight, Flight]:
        """Return image `item` of the sequence `number`, and its horizontal and vertical motion."""
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
        """Return 256 numbers: for each grey value, the number of its pixels in all frames."""
        counts = [0] * 256
        for number in range(len(self)):
            for frame in self.frames(number):
                counts = [sum(pair) for pair in zip(counts, frame.histogram(), strict=True)]
        return counts


MODEL = Moving
