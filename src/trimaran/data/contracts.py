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
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar, cast

from pydantic import AfterValidator, Field, model_validator

from shards.kinds import FormatName, ImageFormat, Kind
from trimaran import paths, strict
from trimaran.errors import RunError, UsageError
from trimaran.files import md5
from trimaran.files import sha256 as sha256_of
from trimaran.strict import Sha256

if TYPE_CHECKING:
    from trimaran.data.packing.listing import Listing, Samples
    from trimaran.reporting import Advance, Reporter

READERS = {
    "idx": "idx", "moving": "moving_reader", "video": "video_reader", "zip": "zip_reader",
    "text": "text_reader", "licensed-text": "licensed_text", "cifar": "cifar_reader",
    "ilsvrc2012": "ilsvrc", "kitti-tracking": "kitti_reader", "chestxray14": "chestxray",
}
"""A dictionary that maps the value of `reader` in a contract to a module in the package `packing`.

The constant `MODEL` of the module is the pydantic model of the contracts with this reader.
"""


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Url = Annotated[str, Field(pattern=r"^(https?|file)://\S+$")]


def _stays_inside(path: str) -> str:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("must be a relative path without '.', '..' and '//'")
    return path


RelativePath = Annotated[str, Field(pattern=r"^[^\s\\]+$"), AfterValidator(_stays_inside)]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]*$")]
Size = Annotated[int, Field(gt=0)]


class Licence(strict.Model):
    """The terms of use of the data."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9.+-]+$", description="SPDX identifier")]
    url: Url
    holder: str


class Content(strict.Model):
    """The SHA-256 and size in bytes of a file after decompression."""

    sha256: Sha256
    size: Size

    def is_in(self, path: Path) -> bool:
        """Return True if `path` is a file with this size and SHA-256."""
        return (
            path.is_file() and path.stat().st_size == self.size and sha256_of(path) == self.sha256
        )


class Sent(strict.Model):
    """A file as a server sends it; it is compressed if its path ends with `.gz`."""

    path: RelativePath
    sha256: Sha256
    size: Size
    md5: Annotated[Md5 | None, Field(description="published MD5, if no SHA-256 is")] = (
        None
    )


class UrlSource(strict.Model):
    """A web server that provides each file separately; the paths are relative to the URL `base`."""

    kind: Literal["url"]
    base: Annotated[Url, Field(pattern=r"/$")]
    files: dict[FileName, Sent] = Field(min_length=1)

    @property
    def gives(self) -> set[str]:
        """The names of the files that this source provides."""
        return set(self.files)

    @property
    def title(self) -> str:
        """The name of this source in messages."""
        return self.base


class Archive(strict.Model):
    """An archive that contains the files.

    `members` maps the name of each file to its path below `folder` in the archive.
    """

    path: RelativePath
    sha256: Sha256
    size: Size
    folder: RelativePath
    members: dict[FileName, RelativePath] = Field(min_length=1)

    @property
    def gives(self) -> set[str]:
        """The names of the files that this source provides."""
        return set(self.members)

    @property
    @abstractmethod
    def title(self) -> str:
        """The name of this source in messages."""


class TarSource(Archive):
    """A tar file on a web server, compressed with gzip; `path` is relative to the URL `base`.

    Attributes:
        pickled: whether each member is a CIFAR-10 file in Python's pickle format, which is
            converted to the binary format of `files` (see `packing.cifar_pickle`).
    """

    kind: Literal["tar"]
    base: Annotated[Url, Field(pattern=r"/$")]
    path: Annotated[RelativePath, Field(pattern=r"\.tar\.gz$")]
    md5: Annotated[Md5 | None, Field(description="published MD5")] = None
    pickled: bool = False

    @property
    def title(self) -> str:
        """The name of this source in messages."""
        return self.base + self.path


class Package(Archive):
    """A Debian or Python package that contains the files."""

    publisher: ClassVar[str]

    package: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")]
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9.+:~-]+$")]

    @property
    def title(self) -> str:
        """The name of this source in messages."""
        return f"{self.publisher} package {self.package}"


class DebianSource(Package):
    """A Debian package; `path` is its path on a Debian mirror (`pool/…`)."""

    publisher = "Debian"

    kind: Literal["debian"]
    snapshot: Annotated[str, Field(pattern=r"^\d{8}T\d{6}Z$")]


class PypiSource(Package):
    """A wheel on PyPI; `path` is its path on the file server (`ab/cd/…/name.whl`)."""

    publisher = "PyPI"

    kind: Literal["pypi"]


Source = UrlSource | TarSource | DebianSource | PypiSource


class Described(strict.Model):
    """The keys of every YAML file below `recipes/data/`, such as name, licence and homepage."""

    schema_: Literal[1] = Field(alias="schema")
    name: Name
    title: str
    licence: Licence
    citation: str
    homepage: Url


class Obtainable(Described):
    """Data that Trimaran can download; it tries the sources in the order of the list."""

    files: dict[FileName, Content] = Field(min_length=1)
    sources: list[Annotated[Source, Field(discriminator="kind")]] = Field(min_length=1)

    @property
    def getting(self) -> str:
        """The `trimaran` command that downloads the files."""
        return f"trimaran data get {self.name}"


D = TypeVar("D", bound=Described)


def load_file(choose: Callable[[object], type[D]], path: Path) -> D:
    """Load the YAML file that describes a data set or the weights of a network.

    `choose` gets the parsed content of the file, and returns the model that validates it.

    Raises:
        UsageError: the file is invalid, or its name differs from its key `name`.
    """
    found = strict.load_one(choose, path)
    if found.name != path.stem:
        raise UsageError(
            f"{path}: name: '{found.name}' must be '{path.stem}', the name of the file",
            code="file-invalid",
        )
    return found


class Made(strict.Model):
    """The expected SHA-256 of the file `dataset.json` of the packed data set.

    Packing writes the same file on every machine.

    Attributes:
        sha256: the SHA-256 of the file that this version of Trimaran writes.
        earlier: the hashes of the files that earlier versions wrote. A run with data of an earlier
            version gets a verdict, too.
    """

    sha256: Sha256
    earlier: list[Sha256] = Field(default_factory=list)

    @property
    def known(self) -> list[str]:
        """The accepted hashes of `dataset.json`, of this and of earlier versions of Trimaran."""
        return [self.sha256, *self.earlier]


Percent = Annotated[int, Field(ge=0, le=100)]


class Split(strict.Model):
    """One split of a data set, such as `train`."""

    gigabytes: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="size of its samples in GB (10^9 bytes), which are packed as"
        " they are; null: their publisher does not state it, or they are packed smaller"
    )

    if TYPE_CHECKING:
        @property
        def samples(self) -> int | None:
            """The number of samples; None if it is only known after the files are read."""


class Counted(Split):
    """A split for which the contract states the number of samples."""

    samples: Size


class Common(Described):
    """The keys that every data contract has, whatever reader it uses."""

    kind: ClassVar[Kind] = Kind()
    splits: Mapping[Name, Split]

    if TYPE_CHECKING:
        @property
        def classes(self) -> list[str]:
            """The names of the classes; a label is an index into this list."""

    @property
    def own_format(self) -> FormatName:
        """The packed format that the contract specifies."""
        return "webdataset"


class OfSequences(Common):
    """A data contract whose samples are sequences of images without classes."""

    kind: ClassVar[Kind] = Kind(labels="none", sample="sequence")

    @property
    def classes(self) -> list[str]:
        """An empty list: sequences have no classes."""
        return []


class Packing(strict.Model):
    """The options of the packing: format, image size (see `plan.Options`) and JPEG quality."""

    format: ImageFormat
    resize: Size | tuple[Size, Size]
    quality: Annotated[int, Field(ge=1, le=95)]


class OfFiles(Common):
    """A data contract whose samples are image files or videos, which are listed before packing."""

    packing: Packing

    @property
    def own_format(self) -> FormatName:
        """The packed format that the contract specifies."""
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
        """Return the names of the files from which the splits are read (by default, all files)."""
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


class OfArrays(Contract):
    """A data contract whose samples are read from arrays and packed as PNG files."""

    @abstractmethod
    def read(self, raw: Path, split: str) -> Samples:
        """Read one split from the verified files in `raw`.

        Raises:
            RunError: a file differs from the contract.
        """


class Published(strict.Model):
    """The checksum of a file, as the publisher of the file states it."""

    md5: Annotated[Md5 | None, Field(description="null: no checksum is published")] = None


class Licensed(Common):
    """A data set that users download themselves.

    Either the holder of the data requires that users accept the licence, or the contract has no
    checksums of the files, so that Trimaran could not verify a download.

    Attributes:
        instructions: how to get the files; shown if a file is missing.
        files: the files that the user downloads, with their published checksums.
    """

    instructions: str
    files: dict[FileName, Published] = Field(min_length=1)

    @property
    def why_not(self) -> str:
        """The reason why Trimaran does not download the files, as part of a sentence."""
        return (f"{self.licence.holder} requires that you accept its terms"
                f" ({self.licence.url})")

    def needed(self, source: Path) -> list[str]:
        """Return the names of the files that must exist in `source` (by default, all files)."""
        return list(self.files)

    def verified(self, source: Path | None, reporter: Reporter) -> Path:
        """Return the folder with the user's files, after comparing them with the contract.

        Args:
            source: the folder; None if the user did not give a folder.
            reporter: shows progress.

        Raises:
            RunError: `source` is None (the hint explains how to get the files), or a file is
                missing, or does not have the published checksum.
        """
        explained = self.instructions.rstrip()
        if source is None:
            raise RunError(
                f"{self.name} cannot be downloaded automatically: {self.why_not}",
                code="licence-required", hint=explained,
            )
        names = self.needed(source)
        missing = [name for name in names if not (source / name).is_file()]
        if missing:
            raise RunError(f"{source} lacks {', '.join(missing)}", code="file-missing",
                           hint=explained)
        self._check(source, names, reporter)
        return source

    def check_counts(self, source: Path, found: Mapping[str, int]) -> None:
        """Raise RunError if the splits do not have the numbers of samples in the contract.

        Args:
            source: the folder with the user's files, for the message.
            found: number of samples of each split, by the name of the split.
        """
        for split, wanted in self.splits.items():
            if wanted.samples is not None and found.get(split, 0) != wanted.samples:
                raise RunError(f"{source}: split {split} has {found.get(split, 0):,} samples, not"
                               f" {wanted.samples:,}", code="data-mismatch")

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


class LicensedFiles(Licensed, OfFiles):
    """Image files or videos that users download themselves."""

    def checked(self, source: Path | None, unpacked: Path, reporter: Reporter) -> Listing:
        """List the samples of the files in `source`, after comparing the files with the contract.

        Args:
            source: the folder with the user's files; None if the user did not give a folder.
            unpacked: a folder for files that must be unpacked before they are read.
            reporter: shows progress.

        Raises:
            RunError: `source` is None, a file is missing, damaged or differs from its published
                checksum, or the number of samples of a split differs from the contract.
        """
        folder = self.verified(source, reporter)
        listing = self.listing(folder, unpacked, reporter)
        self.check_counts(folder, {name: len(found) for name, found in listing.splits.items()})
        return listing


def _with_md5(path: Path, advance: Advance) -> tuple[Path, str]:
    return path, md5(path, advance)


AnyContract = Contract | Licensed


def _known(reader: str) -> str:
    if reader not in READERS:
        *others, last = map(repr, READERS)
        raise ValueError(f"Input should be {', '.join(others)} or {last}")
    return reader


class _Unknown(strict.Model, extra="ignore"):
    """A model for an unknown `reader`: it rejects the contract and lists the valid readers."""

    reader: Annotated[str, AfterValidator(_known)]


_DEFINED = paths.Definitions("data set", ("recipes/data/*.yaml",))
names, file_of = _DEFINED.names, _DEFINED.file_of


def load(name: str) -> AnyContract:
    """Load the contract called `name`.

    Raises:
        UsageError: no contract has this name (the hint lists similar names), or its file is
            invalid.
    """
    return load_file(_model, file_of(name))


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
