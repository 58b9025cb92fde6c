"""Where a data set comes from: its licence, its files by hash, and the sources that give them."""

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
    def gives(self) -> set[str]:
        """The names of the files that it has."""
        return set(self.files)

    @property
    def title(self) -> str:
        """What messages call this source."""
        return self.base


class Archive(strict.Model):
    """One archive whose `folder` holds the files; `members` maps each file to its path there."""

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
        """The names of the files that it has."""
        return set(self.members)

    @property
    def title(self) -> str:
        """What messages call this source."""
        return f"{self.publisher} package {self.package}"


class DebianSource(Archive):
    """A package of Debian; `path` is its place in the archive (`pool/…`)."""

    publisher = "Debian"

    kind: Literal["debian"]
    snapshot: Annotated[str, Field(pattern=r"^\d{8}T\d{6}Z$")]


class PypiSource(Archive):
    """A wheel on PyPI; `path` is its place on the file server (`ab/cd/…/name.whl`)."""

    publisher = "PyPI"

    kind: Literal["pypi"]


Source = UrlSource | DebianSource | PypiSource


class Described(strict.Model):
    """What each file below `recipes/data/` begins with: whose it is, and on which terms."""

    schema_: Literal[1] = Field(alias="schema")
    name: Name
    title: str
    licence: Licence
    citation: str
    homepage: Url


class Obtainable(Described):
    """What is made of files that have sources, which are tried in their order."""

    files: dict[FileName, Content] = Field(min_length=1)
    sources: list[Annotated[Source, Field(discriminator="kind")]] = Field(min_length=1)

    @property
    def getting(self) -> str:
        """The command that gets the files."""
        return f"trimaran data get {self.name}"


D = TypeVar("D", bound=Described)


def load(choose: Callable[[object], type[D]], path: Path) -> D:
    """Load the file of a data set, or of weights; see `strict.load_one`.

    Raises:
        UsageError: it has faults, or is not called as what it describes.
    """
    found = strict.load_one(choose, path)
    if found.name != path.stem:
        raise UsageError(
            f"{path}: name: '{found.name}' must be '{path.stem}', as the file is called"
        )
    return found


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
