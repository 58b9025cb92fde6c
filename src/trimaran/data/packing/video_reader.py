"""Reader `video`: list sequences that are parts of videos, as defined in the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimaran import strict
from trimaran.data.contracts import Contract, FileName, Name, OfFiles, OfSequences, Size, Split
from trimaran.data.packing.listing import Listing, Sample, fingerprint
from trimaran.reporting import Reporter


class VideoClip(strict.Model):
    """The part of a video that is one sequence of a data set.

    Attributes:
        frames: number of the first frame, and of the frame after the last frame; counted from 0.
    """

    video: FileName
    frames: tuple[Annotated[int, Field(ge=0)], Size]
    box: Annotated[
        tuple[int, int, int, int] | None,
        Field(description="left, top, right, bottom of the part of the frame, in pixels"),
    ] = None


class VideoSplit(Split):
    """A split of a data set: the names of its sequences, each with its part of a video."""

    sequences: dict[Name, VideoClip] = Field(min_length=1)

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self.sequences)


class Videos(OfSequences, OfFiles, Contract):
    """The data contract of sequences that are parts of videos; no two sequences share a frame."""

    reader: Literal["video"]
    splits: dict[Name, VideoSplit] = Field(min_length=1)

    def used(self) -> set[str]:
        """Return the names of the video files from which the splits are read."""
        return {clip.video for _, clip in self._clips()}

    def _clips(self) -> list[tuple[str, VideoClip]]:
        return [(f"{split}.{name}", clip) for split, of in self.splits.items()
                for name, clip in of.sequences.items()]

    @model_validator(mode="after")
    def _no_frame_twice(self) -> Videos:
        last: dict[str, tuple[int, str]] = {}
        for name, clip in sorted(self._clips(), key=lambda one: one[1].frames):
            begin, end = clip.frames
            before, other = last.get(clip.video, (0, ""))
            if begin >= end:
                raise ValueError(f"splits.{name}: frames {begin} to {end} are an empty range")
            if begin < before:
                raise ValueError(f"splits.{name}: frame {begin} of {clip.video} is also in {other}")
            last[clip.video] = end, name
        return self

    def listing(self, folder: Path, unpacked: Path, reporter: Reporter) -> Listing:
        """List the sequences in the verified videos in `folder`.

        A sequence is one sample, so all of its frames are in the same split.
        """
        from trimaran.data.packing.videos import Clip  # slow to import: Pillow

        splits = {
            split: [
                Sample(f"{split}/{name}", (), clip.video, 0, self.files[clip.video].size,
                       clip=Clip(*clip.frames, clip.box))
                for name, clip in sorted(of.sequences.items())
            ]
            for split, of in self.splits.items()
        }
        contents = {name: content.sha256 for name, content in self.files.items()}
        stamps = [*map(str, splits.values()), *contents.values()]
        return Listing(folder, [], splits, fingerprint(stamps), kind=self.kind, contents=contents)


MODEL = Videos
