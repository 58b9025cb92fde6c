"""What a contract says of a split: which samples are in it, in the way of its kind of files."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from trimaran import strict
from trimaran.data.origins import FileName, Name, RelativePath, Size

Percent = Annotated[int, Field(ge=0, le=100)]


class Counted(strict.Model):
    """How many samples a split has."""

    samples: Size


class VideoClip(strict.Model):
    """A part of a video that is one sequence: frames from the first to before the second."""

    video: FileName
    frames: tuple[Annotated[int, Field(ge=0)], Size]
    box: Annotated[
        tuple[int, int, int, int] | None,
        Field(description="left, top, right, bottom of what is cut out, in pixels"),
    ] = None


class VideoSplit(strict.Model):
    """The sequences of one split, by name."""

    sequences: dict[Name, VideoClip] = Field(min_length=1)

    @property
    def samples(self) -> int:
        """How many samples it has."""
        return len(self.sequences)


class PatientSplit(strict.Model):
    """The images that a list names, or those of a part of the patients that no list names.

    How many they are is not known where a list has to be had first.
    """

    samples: Size | None = None
    percent: tuple[Percent, Percent] | None = None
    list: FileName | None = None

    @model_validator(mode="after")
    def _one_way(self) -> PatientSplit:
        if (self.percent is None) == (self.list is None):
            raise ValueError("give either 'percent' or 'list'")
        return self


class ImageSplit(Counted):
    """Which IDX files hold the samples of one split."""

    images: FileName
    labels: FileName


class MovingSplit(Counted):
    """Which IDX file holds the items that move in the sequences of one split."""

    images: FileName


class HashedSplit(Counted):
    """The images whose hash of their content, taken modulo 100, is from the first to before the
    second number: two files with one content are never in two splits.
    """

    percent: tuple[Percent, Percent]


class KittiSplit(Counted):
    """The sequences in one folder of the zip; how many frames they have in all, where known."""

    folder: RelativePath
    frames: Size | None = None
