"""Data contracts: what a data set is, who may use it, where it comes from, how it is verified.

`recipes/data/<name>.yaml` names each file by the SHA-256 of its *content*, after
unpacking: mirrors often compress the same content anew, and then no hash of the
compressed file holds for all of them. Each source adds the hash of what it sends,
which is checked first. `reader` says what is in the files, and so which model the contract has.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, cast

from pydantic import Field, model_validator

from shards.kinds import FormatName, Kind
from trimaran import paths, strict
from trimaran.data import origins
from trimaran.data.origins import (
    Described,
    FileName,
    Made,
    Md5,
    Name,
    Obtainable,
    RelativePath,
    Size,
)
from trimaran.data.splits import (
    Counted,
    HashedSplit,
    ImageSplit,
    KittiSplit,
    MovingSplit,
    PatientSplit,
    VideoClip,
    VideoSplit,
)
from trimaran.strict import Sha256


class _Common(Described):
    kind: ClassVar[Kind] = Kind()
    splits: Mapping[Name, Counted | VideoSplit | PatientSplit]


class _OfSequences(_Common):
    kind: ClassVar[Kind] = Kind(labels="none", sample="sequence")
    classes: ClassVar[list[str]] = []


class Contract(_Common, Obtainable):
    """One data set that anybody may download: licence, origin, hashes and splits."""

    packed: Made | None = None

    def used(self) -> set[str]:
        """Return the names of the files that the splits are made of: all, unless they name some."""
        return set(self.files)

    @model_validator(mode="after")
    def _consistent(self) -> Contract:
        given = set(self.files)
        faults = [] if self.used() == given else [_difference("splits", self.used(), given)]
        for number, source in enumerate(self.sources):
            if not source.gives <= given:
                faults.append(_difference(f"sources.{number}", source.gives | given, given))
        anywhere = set().union(*(source.gives for source in self.sources))
        if given - anywhere:
            faults.append(f"sources: none has {', '.join(sorted(given - anywhere))}")
        if "train" not in self.splits:
            faults.append("splits: 'train' is missing (mean and deviation are taken from it)")
        if faults:
            raise ValueError("; ".join(faults))
        return self


class Images(Contract):
    """Grey images of one class each, in IDX files."""

    reader: Literal["idx"]
    classes: list[str] = Field(min_length=2)
    splits: dict[Name, ImageSplit] = Field(min_length=1)

    def used(self) -> set[str]:
        """Return the names of the files that the splits are made of."""
        return {name for split in self.splits.values() for name in (split.images, split.labels)}

    @model_validator(mode="after")
    def _classes_differ(self) -> Images:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("a class is named twice")
        return self


class Motion(strict.Model):
    """How items move, all in whole pixels: see `packing/moving.py`."""

    side: Annotated[Size, Field(description="of a frame, which is square")]
    frames: Annotated[Size, Field(description="of a sequence")]
    items: Annotated[Size, Field(description="in a sequence")]
    speed: Annotated[Size, Field(description="at most, along each side, from frame to frame")]
    seed: Annotated[int, Field(ge=0)]


class Moving(_OfSequences, Contract):
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
        other = strict.load(Images, file_of(content["from"]))
        return {**content, "files": other.files, "sources": other.sources}


class Packing(strict.Model):
    """How the data set is packed: format, size as of `Options`, JPEG quality."""

    format: FormatName
    resize: Size | tuple[Size, Size]
    quality: Annotated[int, Field(ge=1, le=95)]


class Videos(_OfSequences, Contract):
    """Sequences that are parts of videos; a frame is in one of them at most."""

    reader: Literal["video"]
    splits: dict[Name, VideoSplit] = Field(min_length=1)
    packing: Packing

    def used(self) -> set[str]:
        """Return the names of the files that the splits are made of."""
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
                raise ValueError(f"splits.{name}: frames {begin} to {end} are none")
            if begin < before:
                raise ValueError(f"splits.{name}: frame {begin} of {clip.video} is in {other}, too")
            last[clip.video] = end, name
        return self


class Zipped(Contract):
    """Images with any number of classes, which their folders in a zip (such as a wheel) say."""

    kind: ClassVar[Kind] = Kind(labels="multi")

    reader: Literal["zip"]
    classes: list[str] = Field(min_length=1)
    folders: dict[RelativePath, list[str]] = Field(min_length=1)
    splits: dict[Name, HashedSplit] = Field(min_length=1)
    packing: Packing

    @model_validator(mode="after")
    def _one_zip_and_each_image_once(self) -> Zipped:
        if len(self.files) > 1:
            raise ValueError("files: the images are in one zip")
        if others := sorted(set(itertools.chain(*self.folders.values())) - set(self.classes)):
            raise ValueError(f"folders: {', '.join(others)}: not among the classes")
        parts = sorted(split.percent for split in self.splits.values())
        ends = [0, *itertools.chain(*parts), 100]
        if ends[::2] != ends[1::2]:
            raise ValueError("splits: their percent do not go from 0 to 100 without gap or overlap")
        return self


class Published(strict.Model):
    """A file as its publisher describes it."""

    md5: Annotated[Md5 | None, Field(description="null: it publishes none")] = None


class Licensed(_Common):
    """One data set that its users get themselves, because they have to agree to a licence.

    `instructions` say how; `files` are what they then have.
    """

    instructions: str
    files: dict[FileName, Published] = Field(min_length=1)
    packing: Packing


class ImageNet(Licensed):
    """The images of ILSVRC 2012, in the official tars."""

    reader: Literal["ilsvrc2012"]
    splits: dict[Name, Counted] = Field(min_length=1)

    @property
    def classes(self) -> list[str]:
        """The names of the classes, in the order of their labels."""
        from trimaran.data.packing import ilsvrc  # it reads a file of the checkout, rarely needed

        return ilsvrc.class_names(sorted(ilsvrc.synsets()))


class Kitti(_OfSequences, Licensed):
    """The sequences of KITTI's tracking benchmark, in the official zip."""

    reader: Literal["kitti-tracking"]
    splits: dict[Name, KittiSplit] = Field(min_length=1)


class ChestXray14(Licensed):
    """NIH's chest X-rays with any of 14 findings; each patient is in one split."""

    kind: ClassVar[Kind] = Kind(labels="multi")

    reader: Literal["chestxray14"]
    classes: list[str] = Field(min_length=1)
    seed: Annotated[int, Field(ge=0, description="of the order of the patients")]
    assigned: Annotated[
        Sha256 | None, Field(description="SHA-256 of each image with its split and findings")
    ] = None
    splits: dict[Name, PatientSplit] = Field(min_length=1)


AnyLicensed = ImageNet | Kitti | ChestXray14
OfFiles = Videos | Zipped | AnyLicensed
"""Those whose samples are listed first, and then packed from image files or videos."""

AnyContract = Images | Moving | OfFiles

_READERS: dict[object, type[AnyContract]] = {
    "idx": Images, "moving": Moving, "video": Videos, "zip": Zipped, "ilsvrc2012": ImageNet,
    "kitti-tracking": Kitti, "chestxray14": ChestXray14,
}


class _Unknown(strict.Model, extra="ignore"):
    """A contract whose reader is none of these: says so."""

    reader: Literal["idx", "moving", "video", "zip", "ilsvrc2012", "kitti-tracking", "chestxray14"]


_DEFINED = paths.Definitions("data set", ("recipes/data/*.yaml",))
names, file_of = _DEFINED.names, _DEFINED.file_of


def load(name: str) -> AnyContract:
    """Load the contract called `name`.

    Raises:
        UsageError: no such contract (the nearest are named) or faults in its file.
    """
    return origins.load(_model, file_of(name))


def _model(content: object) -> type[AnyContract]:
    reader = content.get("reader") if isinstance(content, dict) else None
    known = _READERS.get(reader) if isinstance(reader, str) else None
    return known or cast(type[AnyContract], _Unknown)


def _difference(where: str, given: set[str], wanted: set[str]) -> str:
    parts = []
    if wanted - given:
        parts.append(f"lacks {', '.join(sorted(wanted - given))}")
    if given - wanted:
        parts.append(f"names {', '.join(sorted(given - wanted))}, which 'files' has not")
    return f"{where}: {' and '.join(parts)}"
