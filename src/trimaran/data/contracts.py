"""Data contracts: what a data set is, who may use it, where it comes from, how it is verified.

`recipes/data/<name>.yaml` names each file by the SHA-256 of its *content*, after
unpacking: mirrors often compress the same content anew, and then no hash of the
compressed file holds for all of them. Each source adds the hash of what it sends,
which is checked first. `reader` says what is in the files: a row of `READERS` names the module that
has the model of such contracts and reads the files.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

from pydantic import AfterValidator, Field, model_validator

from shards.kinds import FormatName, Kind
from trimaran import paths, strict
from trimaran.data import origins
from trimaran.data.origins import Described, FileName, Made, Md5, Name, Obtainable, Size
from trimaran.data.splits import Split

if TYPE_CHECKING:
    from trimaran.data.packing.listing import Listing
    from trimaran.data.packing.samples import Samples
    from trimaran.reporting import Reporter

READERS = {
    "idx": "labelled_idx", "moving": "moving_reader", "video": "video_reader", "zip": "zip_reader",
    "ilsvrc2012": "ilsvrc", "kitti-tracking": "kitti_reader", "chestxray14": "chestxray",
}
"""Reader -> its module below `packing`, whose `MODEL` is that of its contracts."""


class Common(Described):
    """What all contracts have, whatever their reader."""

    kind: ClassVar[Kind] = Kind()
    splits: Mapping[Name, Split]

    if TYPE_CHECKING:
        @property
        def classes(self) -> list[str]:
            """Their names, by their numbers."""

    @property
    def own_format(self) -> FormatName:
        """The format that the contract itself says."""
        return "webdataset"


class OfSequences(Common):
    """Of those whose samples are sequences, without classes."""

    kind: ClassVar[Kind] = Kind(labels="none", sample="sequence")

    @property
    def classes(self) -> list[str]:
        """None."""
        return []


class Packing(strict.Model):
    """How the data set is packed: format, size as of `Options`, JPEG quality."""

    format: FormatName
    resize: Size | tuple[Size, Size]
    quality: Annotated[int, Field(ge=1, le=95)]


class OfFiles(Common):
    """Of those whose samples are listed first, and then packed from image files or videos."""

    packing: Packing

    @property
    def own_format(self) -> FormatName:
        """The format that the contract itself says."""
        return self.packing.format

    @abstractmethod
    def listing(self, folder: Path, unpacked: Path, reporter: Reporter) -> Listing:
        """List the samples in the verified files in `folder`.

        Args:
            folder: of the files.
            unpacked: a folder for what cannot be read where it is.
            reporter: shows progress.

        Raises:
            RunError: the files are not as the contract says.
        """


class Contract(Common, Obtainable):
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


class OfArrays(Contract):
    """Of those whose samples are read from arrays, and packed as PNG files."""

    @abstractmethod
    def read(self, raw: Path, split: str) -> Samples:
        """Read one split from the verified files in `raw`.

        Raises:
            RunError: a file is not as the contract says.
        """


class Published(strict.Model):
    """A file as its publisher describes it."""

    md5: Annotated[Md5 | None, Field(description="null: it publishes none")] = None


class Licensed(OfFiles):
    """One data set that its users get themselves, because they have to agree to a licence.

    `instructions` say how; `files` are what they then have.
    """

    instructions: str
    files: dict[FileName, Published] = Field(min_length=1)

    def needed(self, source: Path) -> list[str]:
        """Return the names of the files that have to be in `source`: all of them."""
        return list(self.files)


AnyContract = Contract | Licensed


def _known(reader: str) -> str:
    if reader not in READERS:
        *others, last = map(repr, READERS)
        raise ValueError(f"Input should be {', '.join(others)} or {last}")
    return reader


class _Unknown(strict.Model, extra="ignore"):
    """A contract whose reader is none of these: says so."""

    reader: Annotated[str, AfterValidator(_known)]


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
    name = READERS.get(reader) if isinstance(reader, str) else None
    if name is None:
        return cast(type[AnyContract], _Unknown)
    module = importlib.import_module(f"trimaran.data.packing.{name}")
    return cast(type[AnyContract], module.MODEL)


def _difference(where: str, given: set[str], wanted: set[str]) -> str:
    parts = []
    if wanted - given:
        parts.append(f"lacks {', '.join(sorted(wanted - given))}")
    if given - wanted:
        parts.append(f"names {', '.join(sorted(given - wanted))}, which 'files' has not")
    return f"{where}: {' and '.join(parts)}"
