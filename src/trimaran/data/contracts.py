"""Data contracts: the licence, sources, checksums and splits of a data set.

`recipes/data/<name>.yaml` lists each file with the SHA-256 of its *content* after decompression.
Mirrors often compress the same content again, so that their compressed files have different
hashes. Each source also lists the hash of the file that it sends, which is checked first. The key
`reader` selects the module (see `READERS`) that reads the files and contains the model of the
contract.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol, cast

from pydantic import AfterValidator, Field, model_validator

from shards.kinds import FormatName, Kind
from trimaran import paths, strict
from trimaran.data import origins
from trimaran.data.origins import Described, FileName, Made, Md5, Name, Obtainable, Size
from trimaran.errors import RunError
from trimaran.files import md5

if TYPE_CHECKING:
    from PIL import Image

    from trimaran.data.packing.listing import Listing
    from trimaran.reporting import Advance, Reporter

READERS = {
    "idx": "idx", "moving": "moving_reader", "video": "video_reader", "zip": "zip_reader",
    "ilsvrc2012": "ilsvrc", "kitti-tracking": "kitti_reader", "chestxray14": "chestxray",
}
"""Reader -> module in the package `packing`.

The constant `MODEL` of the module is the pydantic model of the contracts with this reader.
"""


Percent = Annotated[int, Field(ge=0, le=100)]


class Split(strict.Model):
    """One split of a data set."""

    if TYPE_CHECKING:
        @property
        def samples(self) -> int | None:
            """The number of samples (None: unknown before the files are read)."""


class Counted(Split):
    """A split whose number of samples is in the contract."""

    samples: Size


class Common(Described):
    """The keys of every contract, independent of its reader."""

    kind: ClassVar[Kind] = Kind()
    splits: Mapping[Name, Split]

    if TYPE_CHECKING:
        @property
        def classes(self) -> list[str]:
            """The names of the classes; a label is an index into this list."""

    @property
    def own_format(self) -> FormatName:
        """The format that the contract specifies."""
        return "webdataset"


class OfSequences(Common):
    """A contract whose samples are sequences of images without classes."""

    kind: ClassVar[Kind] = Kind(labels="none", sample="sequence")

    @property
    def classes(self) -> list[str]:
        """An empty list: sequences have no classes."""
        return []


class Packing(strict.Model):
    """How the data set is packed: format, image size (see `plan.Options`), JPEG quality."""

    format: FormatName
    resize: Size | tuple[Size, Size]
    quality: Annotated[int, Field(ge=1, le=95)]


class OfFiles(Common):
    """A contract whose samples are image files or videos; they are listed, then packed."""

    packing: Packing

    @property
    def own_format(self) -> FormatName:
        """The format that the contract specifies."""
        return self.packing.format

    @abstractmethod
    def listing(self, folder: Path, unpacked: Path, reporter: Reporter) -> Listing:
        """List the samples in the verified files in `folder`.

        Args:
            folder: the folder of the files.
            unpacked: a folder for files that must be unpacked before they are read.
            reporter: shows progress.

        Raises:
            RunError: the files differ from the contract.
        """


class Contract(Common, Obtainable):
    """A data set that Trimaran downloads: licence, sources, hashes and splits."""

    packed: Made | None = None

    def used(self) -> set[str]:
        """Return the names of the files that the splits are made of (by default, all files)."""
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
            faults.append(f"sources: none provides {', '.join(sorted(given - anywhere))}")
        if "train" not in self.splits:
            faults.append("splits: 'train' is missing (mean and deviation are computed from it)")
        if faults:
            raise ValueError("; ".join(faults))
        return self


class Samples(Protocol):
    """The checked samples of one split.

    Each sample has the same number of grey frames, and all frames have one size.
    """

    @property
    def name(self) -> str:
        """The name of the split."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of frames of a sample, and their height and width in pixels."""

    def __len__(self) -> int: ...

    def labels(self, number: int) -> tuple[int, ...]:
        """Return the classes of the sample `number`."""

    def frames(self, number: int) -> Iterable[Image.Image]:
        """Return the frames of the sample `number`."""

    def histogram(self) -> list[int]:
        """Return for each of the 256 grey values how many pixels in all frames have it."""


class OfArrays(Contract):
    """A contract whose samples are read from arrays and packed as PNG files."""

    @abstractmethod
    def read(self, raw: Path, split: str) -> Samples:
        """Read one split from the verified files in `raw`.

        Raises:
            RunError: a file differs from the contract.
        """


class Published(strict.Model):
    """The checksum of a file that its publisher provides."""

    md5: Annotated[Md5 | None, Field(description="null: no checksum is published")] = None


class Licensed(OfFiles):
    """A data set that users download themselves, because they have to accept its licence.

    Attributes:
        instructions: how to get the files; shown if a file is missing.
        files: the files that the user downloads, with their published checksums.
    """

    instructions: str
    files: dict[FileName, Published] = Field(min_length=1)

    def needed(self, source: Path) -> list[str]:
        """Return the names of the files that must exist in `source` (by default, all files)."""
        return list(self.files)

    def checked(self, source: Path | None, unpacked: Path, reporter: Reporter) -> Listing:
        """List the samples of the files in `source`, after comparing the files with the contract.

        Args:
            source: the folder with the user's files (None: not given).
            unpacked: a folder for files that must be unpacked before they are read.
            reporter: shows progress.

        Raises:
            RunError: `source` is None (the hint explains how to get the files), or a file is
                missing or damaged, or does not have the published checksum.
        """
        explained = self.instructions.rstrip()
        if source is None:
            raise RunError(
                f"{self.name} cannot be downloaded automatically: {self.licence.holder}"
                f" requires that you accept its terms ({self.licence.url})",
                code="licence-required", hint=explained,
            )
        names = self.needed(source)
        missing = [name for name in names if not (source / name).is_file()]
        if missing:
            raise RunError(f"{source} lacks {', '.join(missing)}", code="file-missing",
                           hint=explained)
        self._check(source, names, reporter)
        listing = self.listing(source, unpacked, reporter)
        for split, wanted in self.splits.items():
            found = len(listing.splits.get(split, ()))
            if wanted.samples is not None and found != wanted.samples:
                raise RunError(f"{source}: split {split} has {found:,} samples, not"
                               f" {wanted.samples:,}", code="data-mismatch")
        return listing

    def _check(self, source: Path, names: Collection[str], reporter: Reporter) -> None:
        """Compare the MD5 of the named files with the published MD5, if the contract has it."""
        from trimaran import pool  # slow to import

        tasks = [source / name for name in names if self.files[name].md5]
        if not tasks:
            return
        total = sum(path.stat().st_size for path in tasks)
        with reporter.bar(f"verifying the files of {self.name}", total, unit="B") as advance:
            found = dict(pool.run(_with_md5, tasks, pool.cores(), advance))
        wrong = [
            f"{path} has the MD5 {found[path]}, published is {self.files[path.name].md5}"
            for path in tasks if found[path] != self.files[path.name].md5
        ]
        if wrong:
            raise RunError("\n".join(wrong), code="checksum-mismatch",
                           hint="download them again; the transfer was damaged")


def _with_md5(path: Path, advance: Advance) -> tuple[Path, str]:
    return path, md5(path, advance)


AnyContract = Contract | Licensed


def _known(reader: str) -> str:
    if reader not in READERS:
        *others, last = map(repr, READERS)
        raise ValueError(f"Input should be {', '.join(others)} or {last}")
    return reader


class _Unknown(strict.Model, extra="ignore"):
    """Model of a contract with an unknown reader: validating it fails, and names the reader."""

    reader: Annotated[str, AfterValidator(_known)]


_DEFINED = paths.Definitions("data set", ("recipes/data/*.yaml",))
names, file_of = _DEFINED.names, _DEFINED.file_of


def load(name: str) -> AnyContract:
    """Load the contract called `name`.

    Raises:
        UsageError: no contract has this name (the hint lists similar names), or its file is
            invalid.
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
        parts.append(f"names {', '.join(sorted(given - wanted))}, which is not in 'files'")
    return f"{where}: {' and '.join(parts)}"
