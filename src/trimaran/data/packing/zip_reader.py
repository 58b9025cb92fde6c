"""Reader `zip`: read images from one zip file, such as a wheel; folders determine the classes."""

from __future__ import annotations

import itertools
import zipfile
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from shards.kinds import Kind
from trimaran.data.contracts import Contract, Counted, Name, OfFiles, Percent, RelativePath
from trimaran.data.packing import shares
from trimaran.data.packing.listing import Listing, Sample, fingerprint, is_image, readable
from trimaran.errors import RunError
from trimaran.reporting import Reporter


class HashedSplit(Counted):
    """A split with the images whose hash modulo 100 is in the range `percent`.

    The end of the range is not included. The hash is computed from the content of the image file,
    so that equal images are in the same split.
    """

    percent: tuple[Percent, Percent]


class Zipped(OfFiles, Contract):
    """The data contract (description of a data set) for images in a zip.

    The folder of an image in the zip determines the classes of the image.
    """

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
        shares.check(self._shares)
        return self

    @property
    def _shares(self) -> shares.Shares:
        return {name: split.percent for name, split in self.splits.items()}

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
                split = shares.split_of(archive.read(member), self._shares)
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


MODEL = Zipped
