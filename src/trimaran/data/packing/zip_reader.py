"""Reader `zip`: read images from one zip, such as a wheel; each folder has its classes."""

from __future__ import annotations

import hashlib
import itertools
import zipfile
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from shards.kinds import Kind
from trimaran.data.contracts import Contract, Counted, Name, OfFiles, Percent, RelativePath
from trimaran.data.packing.listing import Listing, Sample, fingerprint, is_image, readable
from trimaran.errors import RunError
from trimaran.reporting import Reporter


class HashedSplit(Counted):
    """A split with the images whose hash modulo 100 is in the half-open range `percent`.

    The hash is that of the content, so that equal images are in the same split.
    """

    percent: tuple[Percent, Percent]


class Zipped(OfFiles, Contract):
    """The contract of images in a zip; the folder of an image determines its classes."""

    kind: ClassVar[Kind] = Kind(labels="multi")

    reader: Literal["zip"]
    classes: list[str] = Field(min_length=1)
    folders: dict[RelativePath, list[str]] = Field(min_length=1)
    splits: dict[Name, HashedSplit] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_zip_and_each_image_once(self) -> Zipped:
        if len(self.files) > 1:
            raise ValueError("files: only one zip is allowed")
        if others := sorted(set(itertools.chain(*self.folders.values())) - set(self.classes)):
            raise ValueError(f"folders: {', '.join(others)}: not among the classes")
        parts = sorted(split.percent for split in self.splits.values())
        ends = [0, *itertools.chain(*parts), 100]
        if ends[::2] != ends[1::2]:
            raise ValueError("splits: their percent must cover 0 to 100 without gap or overlap")
        return self

    def listing(self, folder: Path, unpacked: Path, reporter: Reporter) -> Listing:
        """List the images in the verified zip in `folder`.

        Raises:
            RunError: the file is not a zip, a member is damaged, or the number of images of a
                split differs from the contract.
        """
        ((name, content),) = self.files.items()
        number = {one: at for at, one in enumerate(self.classes)}
        splits: dict[str, list[Sample]] = {split: [] for split in self.splits}
        ignored: list[str] = []
        with readable(folder / name), zipfile.ZipFile(folder / name) as archive:
            for member in sorted(archive.infolist(), key=lambda one: one.filename):
                above, _, base = member.filename.rpartition("/")
                if above not in self.folders or not base:
                    continue
                if not is_image(base):
                    ignored.append(f"{name}: {member.filename}")
                    continue
                split = self._split(archive.read(member))
                labels = tuple(sorted(number[one] for one in self.folders[above]))
                splits[split].append(Sample(
                    f"{split}/{above.rpartition('/')[2]}/{base}", labels, name, 0,
                    member.file_size, (member.filename,),
                ))
        for split, wanted in self.splits.items():
            if len(splits[split]) != wanted.samples:
                raise RunError(f"{folder / name}: split {split} has {len(splits[split]):,} images,"
                               f" not {wanted.samples:,}", code="data-mismatch")
        return Listing(folder, self.classes, splits, fingerprint([content.sha256, str(splits)]),
                       ignored, kind=self.kind, contents={name: content.sha256})

    def _split(self, content: bytes) -> str:
        """Return the split of an image file; it depends only on the SHA-256 of its `content`."""
        at = int(hashlib.sha256(content).hexdigest(), 16) % 100
        return next(name for name, split in self.splits.items()
                    if split.percent[0] <= at < split.percent[1])


MODEL = Zipped
