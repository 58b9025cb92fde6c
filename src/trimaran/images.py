"""Image definitions: the strict model of `containers/**/image.yaml`.

A framework image stands on a base image and carries Debian packages and locked
Python wheels; an app image stands on a framework image and carries packages of
this repository. The folder gives the name, so the file has none.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, PrivateAttr, model_validator

from trimaran import paths, strict
from trimaran.errors import UsageError, unknown_name

VENV = "/opt/trimaran"
"""The virtual environment inside every image."""

PythonVersion = Literal["3.11", "3.12", "3.13"]
PYTHONS = get_args(PythonVersion)

# Characters that would mean something else to a shell, to Docker or to Apptainer's
# templates are refused instead of escaped: one rule, the same text in both formats.
Plain = Annotated[str, Field(pattern=r"^[^\n\r\"'\\$`{}]+$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]*$")]
Module = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Absolute = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$")]
Relative = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._/-]*$")]
Url = Annotated[str, Field(pattern=r"^https?://[^\s\"'\\$`{}]+$")]
Lines = Annotated[str, Field(pattern=r"^[^\"'\\$`{}%]+$")]
Suite = Annotated[str, Field(pattern=r"^[a-z]+$")]


class RegistryBase(strict.Model):
    """A base image in a registry, pinned by digest.

    Attributes:
        image: reference with a tag, for people; the digest decides.
        suite: the Debian release in it; assembled instead where no registry is reachable.
    """

    image: Plain
    digest: Digest
    suite: Suite


class Wheel(strict.Model):
    """A wheel that PyPI does not have: its official address and hash."""

    url: Url
    sha256: Sha256


class Python(strict.Model):
    """The interpreter of the image, and wheels from elsewhere than PyPI.

    Attributes:
        version: the minor version that the Debian packages bring; chooses the wheels.
        elsewhere: wheels by official address, for this and other versions (host engine).
    """

    version: PythonVersion
    elsewhere: tuple[Wheel, ...] = ()


class App(strict.Model):
    """What an app image adds: packages of this repository and its commands.

    Attributes:
        packages: folders under `apps/`, installed without dependencies, in this order.
        module: `python -m MODULE` is the entry point.
        commands: verb -> one line of help; each becomes a SCIF app of the SIF.
    """

    packages: tuple[Name, ...] = Field(min_length=1)
    module: Module
    commands: dict[Name, Plain] = Field(min_length=1)


class Image(strict.Model):
    """One `image.yaml`.

    Attributes:
        base: of a framework image; the registry image it stands on.
        framework: of an app image; the framework image it stands on.
        debian: Debian packages asked for; `debian.lock` has their whole closure.
        security: lock Debian's security updates too (see `debian.resolve` for the price).
        python: interpreter; `requirements.in` and `requirements.lock` have the wheels.
        environment: variables set in the running container.
        files: file of this folder -> place in the image.
        test: which of those places is the self-test; the image's own Python runs it.
    """

    schema_: Literal[1] = Field(alias="schema")
    summary: Plain
    description: Lines
    version: Plain
    licenses: Plain
    base: RegistryBase | None = None
    framework: Name | None = None
    debian: tuple[Name, ...] = ()
    security: bool = False
    python: Python | None = None
    environment: dict[Variable, Plain] = Field(default_factory=dict)
    files: dict[Relative, Absolute] = Field(default_factory=dict)
    test: Absolute
    app: App | None = None
    help: Lines

    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _complete(self) -> Image:
        if (self.base is None) == (self.framework is None):
            raise ValueError("give exactly one of 'base' (a framework image) and 'framework'")
        if self.base is not None and (self.python is None or not self.debian):
            raise ValueError("a framework image needs 'debian' and 'python'")
        if self.framework is not None and self.app is None:
            raise ValueError("an app image needs 'app'")
        if self.framework is not None and (self.python or self.debian):
            raise ValueError("'debian' and 'python' belong into the framework image")
        if self.test not in self.files.values():
            raise ValueError(f"test: {self.test} is not among the places of 'files'")
        return self

    @property
    def name(self) -> str:
        """The image's name: that of its folder."""
        return self._folder.name

    @property
    def folder(self) -> Path:
        """The folder that holds `image.yaml` and the locks."""
        return self._folder

    def with_python(self, version: str) -> Image:
        """Return the same definition for another Python, as the host engine needs it.

        Raises:
            UsageError: the locked wheels are not for that version.
        """
        if version not in PYTHONS:
            raise UsageError(
                f"{self.name}: no wheels are locked for Python {version}",
                hint=f"use Python {', '.join(PYTHONS)}, for example: make quickstart "
                f"PYTHON=python{PYTHONS[0]}",
            )
        python = self.python and self.python.model_copy(update={"version": version})
        return self.model_copy(update={"python": python})

    @property
    def kind(self) -> Literal["framework", "app"]:
        """Whether it is a framework image or an app image."""
        return "framework" if self.framework is None else "app"


def names() -> list[str]:
    """Return the names of all images of the checkout, sorted."""
    return sorted(path.parent.name for path in _files())


def load(name: str) -> Image:
    """Read the definition of the image called `name`.

    Raises:
        UsageError: no such image (the nearest names are suggested), or a faulty file.
    """
    for path in _files():
        if path.parent.name == name:
            return read(path)
    raise unknown_name("image", name, names())


def read(path: Path) -> Image:
    """Read one `image.yaml`; every fault is named at once, with its line."""
    image = strict.load(Image, path)
    missing = [name for name in image.files if not (path.parent / name).is_file()]
    if missing:
        raise UsageError(f"{path}: files: {', '.join(missing)} not found in {path.parent}")
    image._folder = path.parent
    return image


def chain(image: Image) -> list[Image]:
    """Return the images to build, in order: the framework image it stands on, then itself."""
    if image.framework is None:
        return [image]
    beside = image.folder.parent / image.framework / "image.yaml"  # test images lie side by side
    below = read(beside) if beside.is_file() else load(image.framework)
    if below.kind != "framework":
        raise UsageError(f"{image.folder / 'image.yaml'}: framework: {below.name} is an app image")
    return [below, image]


def environment(image: Image) -> dict[str, str]:
    """Return all variables of the image, those of its framework image included.

    Apptainer's `%environment` of a derived image replaces the one below, so each
    definition carries the whole of it.
    """
    merged: dict[str, str] = {}
    for part in chain(image):
        merged |= part.environment
    return merged


def package_folder(name: str) -> Path:
    """Return the folder of the package `apps/<name>` of this repository."""
    folder = paths.repository() / "apps" / name
    if not (folder / "pyproject.toml").is_file():
        known = [p.parent.name for p in (paths.repository() / "apps").glob("*/pyproject.toml")]
        raise unknown_name("package", name, known)
    return folder


def content(image: Image) -> str:
    """Return a SHA-256 over everything in the checkout that decides what `image` becomes.

    That is the rendered definitions, its files, its locks, the sources of its
    packages, and the same of the image below. The base image is not in the
    checkout; engines add its digest.
    """
    parts: dict[str, str] = {}
    for part in chain(image):
        for name in ("image.def", "debian.lock", "requirements.lock", *part.files):
            path = part.folder / name
            parts[f"{part.name}/{name}"] = _sha256(path) if path.is_file() else "absent"
        for package in part.app.packages if part.app else ():
            parts |= _sources(package)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _sources(package: str) -> dict[str, str]:
    folder = package_folder(package)
    sources = [folder / "pyproject.toml", folder / "README.md", *(folder / "src").rglob("*")]
    return {
        f"{package}/{path.relative_to(folder)}": _sha256(path)
        for path in sources
        if path.is_file() and "__pycache__" not in path.parts
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _files() -> list[Path]:
    root = paths.repository() / "containers"
    return sorted([*root.glob("frameworks/*/image.yaml"), *root.glob("apps/*/image.yaml")])
