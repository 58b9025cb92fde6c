"""Data contracts: what a data set is, who may use it, where it comes from, how it is verified.

`recipes/data/<name>.yaml` names each file by the SHA-256 of its *content*, after
unpacking: mirrors often compress the same content anew, and then no hash of the
compressed file holds for all of them. Each source adds the hash of what it sends,
which is checked first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from trimaran import paths, strict
from trimaran.errors import UsageError, unknown_name
from trimaran.files import sha256 as sha256_of
from trimaran.strict import Sha256

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
FormatName = Literal["webdataset", "tfrecord", "recordio", "lmdb", "hdf5"]
"""How a data set is packed."""


class Licence(strict.Model):
    """Under which terms the data may be used."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9.+-]+$", description="SPDX identifier")]
    url: Url
    holder: str


class Content(strict.Model):
    """A file as it is read, after unpacking."""

    sha256: Sha256
    size: Size

    def is_in(self, path: Path) -> bool:
        """Return True if the file at `path` holds exactly this."""
        return (
            path.is_file() and path.stat().st_size == self.size and sha256_of(path) == self.sha256
        )


class Sent(strict.Model):
    """A file as a server sends it, `.gz` if its path says so."""

    path: RelativePath
    sha256: Sha256
    size: Size
    md5: Annotated[Md5 | None, Field(description="the publisher's own, where it gives no more")] = (
        None
    )


class UrlSource(strict.Model):
    """Single files below one URL."""

    kind: Literal["url"]
    base: Annotated[Url, Field(pattern=r"/$")]
    files: dict[FileName, Sent] = Field(min_length=1)

    @property
    def title(self) -> str:
        """What messages call this source."""
        return self.base


class Archive(strict.Model):
    """One archive whose `folder` holds the files; `members` maps each file to its path there."""

    package: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")]
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9.+:~-]+$")]
    path: RelativePath
    sha256: Sha256
    size: Size
    folder: RelativePath
    members: dict[FileName, RelativePath] = Field(min_length=1)


class DebianSource(Archive):
    """A package of Debian; `path` is its place in the archive (`pool/…`)."""

    kind: Literal["debian"]
    snapshot: Annotated[str, Field(pattern=r"^\d{8}T\d{6}Z$")]

    @property
    def title(self) -> str:
        """What messages call this source."""
        return f"Debian package {self.package}"


class PypiSource(Archive):
    """A wheel on PyPI; `path` is its place on the file server (`ab/cd/…/name.whl`)."""

    kind: Literal["pypi"]

    @property
    def title(self) -> str:
        """What messages call this source."""
        return f"PyPI package {self.package}"


Source = UrlSource | DebianSource | PypiSource


class Made(strict.Model):
    """What packing makes of the contents on every machine: SHA-256 of its `dataset.json`.

    `earlier` are those of older versions of Trimaran, whose runs are still judged.
    """

    sha256: Sha256
    earlier: list[Sha256] = Field(default_factory=list)

    @property
    def known(self) -> list[str]:
        """The present one and the earlier ones."""
        return [self.sha256, *self.earlier]


class Split(strict.Model):
    """Which files hold the samples of one split, and how many there are."""

    samples: Size
    images: FileName
    labels: FileName


class _Common(strict.Model):
    schema_: Literal[1] = Field(alias="schema")
    name: Name
    title: str
    licence: Licence
    citation: str
    homepage: Url


class Contract(_Common):
    """One data set that anybody may download: licence, origin, hashes, classes and splits."""

    reader: Literal["idx"]
    classes: list[str] = Field(min_length=2)
    splits: dict[Name, Split] = Field(min_length=1)
    files: dict[FileName, Content] = Field(min_length=1)
    packed: Made | None = None
    sources: list[Annotated[Source, Field(discriminator="kind")]] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Contract:
        faults = []
        if len(set(self.classes)) != len(self.classes):
            faults.append("a class is named twice")
        used = {name for split in self.splits.values() for name in (split.images, split.labels)}
        if used != set(self.files):
            faults.append(_difference("splits", used, set(self.files)))
        for number, source in enumerate(self.sources):
            given = set(source.files if isinstance(source, UrlSource) else source.members)
            if given != set(self.files):
                faults.append(_difference(f"sources.{number}", given, set(self.files)))
        if "train" not in self.splits:
            faults.append("splits: 'train' is missing (mean and deviation are taken from it)")
        if faults:
            raise ValueError("; ".join(faults))
        return self


class Published(strict.Model):
    """A file as its publisher describes it."""

    md5: Md5


class Packing(strict.Model):
    """How the data set is packed: format, largest shorter side in pixels, JPEG quality."""

    format: FormatName
    resize: Size
    quality: Annotated[int, Field(ge=1, le=95)]


class LicensedSplit(strict.Model):
    """How many samples a split has."""

    samples: Size


class Licensed(_Common):
    """One data set that its users get themselves, because they have to agree to a licence.

    `instructions` say how; `files` are what they then have.
    """

    reader: Literal["ilsvrc2012"]
    instructions: str
    splits: dict[Name, LicensedSplit] = Field(min_length=1)
    files: dict[FileName, Published] = Field(min_length=1)
    packing: Packing

    @property
    def classes(self) -> list[str]:
        """The names of the classes, in the order of their labels."""
        from trimaran.data.packing import ilsvrc  # it reads a file of the checkout, rarely needed

        return ilsvrc.class_names(sorted(ilsvrc.synsets()))


AnyContract = Contract | Licensed


def names() -> list[str]:
    """Return the names of all data contracts, sorted."""
    return list(_files())


def load(name: str) -> AnyContract:
    """Load the contract called `name`.

    Raises:
        UsageError: no such contract (the nearest are named) or faults in its file.
    """
    path = file_of(name)
    contract = strict.load_one(_model, path)
    if contract.name != name:
        raise UsageError(f"{path}: name: '{contract.name}' must be '{name}', as the file is called")
    return contract


def file_of(name: str) -> Path:
    """Return the file of the contract called `name`.

    Raises:
        UsageError: there is no such contract; the nearest are named.
    """
    files = _files()
    if name not in files:
        raise unknown_name("data set", name, list(files))
    return files[name]


def _files() -> dict[str, Path]:
    return paths.found("recipes/data/*.yaml", name=lambda path: path.stem)


def _model(content: object) -> type[Contract] | type[Licensed]:
    licensed = isinstance(content, dict) and content.get("reader") == "ilsvrc2012"
    return Licensed if licensed else Contract


def _difference(where: str, given: set[str], wanted: set[str]) -> str:
    parts = []
    if wanted - given:
        parts.append(f"lacks {', '.join(sorted(wanted - given))}")
    if given - wanted:
        parts.append(f"names {', '.join(sorted(given - wanted))}, which 'files' has not")
    return f"{where}: {' and '.join(parts)}"
