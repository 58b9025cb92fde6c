"""The origin of a data set: its licence, the hashes of its files, and its download sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field

from trimaran import strict
from trimaran.errors import UsageError
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
        """Return True if the file at `path` exists and has this size and SHA-256."""
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
    """A web server with single files below one URL."""

    kind: Literal["url"]
    base: Annotated[Url, Field(pattern=r"/$")]
    files: dict[FileName, Sent] = Field(min_length=1)

    @property
    def gives(self) -> set[str]:
        """The names of the files that this source has."""
        return set(self.files)

    @property
    def title(self) -> str:
        """The name of this source in messages."""
        return self.base


class Archive(strict.Model):
    """An archive that contains the files.

    `members` maps the name of each file to its path below `folder` in the archive.
    """

    publisher: ClassVar[str]

    package: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")]
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9.+:~-]+$")]
    path: RelativePath
    sha256: Sha256
    size: Size
    folder: RelativePath
    members: dict[FileName, RelativePath] = Field(min_length=1)

    @property
    def gives(self) -> set[str]:
        """The names of the files that this source has."""
        return set(self.members)

    @property
    def title(self) -> str:
        """The name of this source in messages."""
        return f"{self.publisher} package {self.package}"


class DebianSource(Archive):
    """A Debian package; `path` is its path on a Debian mirror (`pool/…`)."""

    publisher = "Debian"

    kind: Literal["debian"]
    snapshot: Annotated[str, Field(pattern=r"^\d{8}T\d{6}Z$")]


class PypiSource(Archive):
    """A wheel on PyPI; `path` is its path on the file server (`ab/cd/…/name.whl`)."""

    publisher = "PyPI"

    kind: Literal["pypi"]


Source = UrlSource | DebianSource | PypiSource


class Described(strict.Model):
    """The keys of every file below `recipes/data/`: name, licence, citation and homepage."""

    schema_: Literal[1] = Field(alias="schema")
    name: Name
    title: str
    licence: Licence
    citation: str
    homepage: Url


class Obtainable(Described):
    """Data that Trimaran can download; the sources are tried in the given order."""

    files: dict[FileName, Content] = Field(min_length=1)
    sources: list[Annotated[Source, Field(discriminator="kind")]] = Field(min_length=1)

    @property
    def getting(self) -> str:
        """The command that gets the files."""
        return f"trimaran data get {self.name}"


D = TypeVar("D", bound=Described)


def load(choose: Callable[[object], type[D]], path: Path) -> D:
    """Load the YAML file of a data set or of weights.

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
    """The SHA-256 of the `dataset.json` that packing writes on every machine.

    Attributes:
        earlier: the hashes from earlier versions of Trimaran; runs with such data get a verdict.
    """

    sha256: Sha256
    earlier: list[Sha256] = Field(default_factory=list)

    @property
    def known(self) -> list[str]:
        """The hashes of `dataset.json` from this version and from earlier versions of Trimaran."""
        return [self.sha256, *self.earlier]
