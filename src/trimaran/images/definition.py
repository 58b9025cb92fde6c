"""Image definitions: the strict model of `containers/**/image.yaml`.

A framework image stands on a base image and carries Debian packages and locked
Python wheels; an app image stands on a framework image and carries packages of
this repository. Both have their wheels in `requirements.in` and `requirements.lock`,
an app image only where it brings some that its framework image lacks. The folder
gives the name, so the file has none.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, PrivateAttr, model_validator

from trimaran import __version__, paths, strict
from trimaran.errors import UsageError
from trimaran.images import variants
from trimaran.images.parts import (
    PYTHONS,
    REFUSED_KEYS,
    App,
    Build,
    Entry,
    Gpu,
    Lines,
    Name,
    Place,
    Plain,
    Python,
    RegistryBase,
    Relative,
    Variable,
)
from trimaran.images.variants import Variant, VariantOf


class Image(strict.Model):
    """One `image.yaml`.

    Attributes:
        base: of a framework image; the registry image it stands on.
        framework: of an app image; the framework image it stands on.
        short: of a framework image; framework and version in its tags (`torch2.13-cpu`).
        debian: Debian packages asked for; `debian.lock` has their whole closure.
        security: lock Debian's security updates too (see `debian.resolve` for the price).
        python: of a framework image; its interpreter.
        gpu: of a framework image; whose GPUs it is for (see `engines.gpu`).
        build: a stage that compiles first.
        environment: variables set in the running container.
        caches: of a framework image; variable -> folder below the user's `~/.cache`, for a
            library whose own choice is a name in /tmp that anybody can take first (see `caches`).
        files: file of this folder, or of `containers/selftests/` -> place in the image.
        test: which of those places is the self-test (see `self_test`).
    """

    schema_: Literal[1] = Field(alias="schema")
    summary: Plain
    description: Lines
    version: Plain
    licenses: Plain
    base: RegistryBase | None = None
    framework: Name | None = None
    short: Name | None = None
    gpu: Gpu | None = None
    debian: tuple[Name, ...] = ()
    security: bool = False
    python: Python | None = None
    build: Build | None = None
    environment: dict[Variable, Plain] = Field(default_factory=dict)
    caches: dict[Variable, Relative] = Field(default_factory=dict)
    files: dict[Relative, Place] = Field(default_factory=dict)
    test: Place
    app: App | None = None
    help: Lines

    _folder: Path = PrivateAttr(default=Path())
    _variant: VariantOf | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _one_meaning(cls, content: Any) -> Any:
        for key, reason in REFUSED_KEYS.items():
            if isinstance(content, dict) and key in content:
                raise ValueError(f"'{key}' is refused: {reason}")
        return content

    @model_validator(mode="after")
    def _complete(self) -> Image:
        if (self.base is None) == (self.framework is None):
            raise ValueError("give exactly one of 'base' (a framework image) and 'framework'")
        if self.base is not None and (self.python is None or self.short is None):
            raise ValueError("a framework image needs 'python' and 'short'")
        if self.framework is not None and self.app is None:
            raise ValueError("an app image needs 'app'")
        if self.framework is not None:
            _only_in_frameworks(self)
        if shared := [key for key, value in self.environment.items() if _SHARED.search(value)]:
            raise ValueError(
                f"environment: {', '.join(shared)}: anybody can take a name in /tmp first;"
                " leave it to the library, or use 'caches'"
            )
        if self.test not in self.files.values():
            raise ValueError(f"test: {self.test} is not among the places of 'files'")
        places = sorted(self.files.values())
        for above, below in itertools.pairwise(places):
            if below == above or below.startswith(f"{above}/"):
                raise ValueError(f"files: {below} cannot be a file in the file {above}")
        return self

    @model_validator(mode="after")
    def _buildable(self) -> Image:
        if self.base is None or self.python is None:
            return self
        debian = self.base.suite is not None
        if debian != bool(self.debian):
            raise ValueError("'debian' and 'base.suite' go together: packages are locked by suite")
        if debian == (self.python.base is not None):
            raise ValueError("give 'python.base' exactly when the base image brings Python")
        if self.build and self.build.debian and not debian:
            raise ValueError("build.debian: the base is no Debian; name files in build.sources")
        return self

    @property
    def name(self) -> str:
        """The image's name: that of its folder."""
        return self._folder.name

    @property
    def folder(self) -> Path:
        """The folder that holds `image.yaml` and the locks."""
        return self._folder

    @property
    def variant(self) -> VariantOf | None:
        """Which variant it is, and of which image; None: it is none."""
        return self._variant

    @property
    def tag(self) -> str:
        """The image's tag in a registry: version of Trimaran, framework and its version."""
        return f"{__version__}-{chain(self)[0].short}"

    @property
    def kind(self) -> Literal["framework", "app"]:
        """Whether it is a framework image or an app image."""
        return "framework" if self.framework is None else "app"


def _only_in_frameworks(image: Image) -> None:
    keys = ("short", "gpu", "debian", "python", "build", "caches")
    if given := [key for key in keys if getattr(image, key)]:
        raise ValueError(f"{', '.join(given)}: belongs into the framework image")


_SHARED = re.compile(r"(?:^|:)/(?:var/)?tmp(?:/|$)")


_DEFINED = paths.Definitions(
    "image", ("containers/frameworks/*/image.yaml", "containers/apps/*/image.yaml"),
    paths.of_folder,
)
names = _DEFINED.names


def load(name: str) -> Image:
    """Read the definition of the image called `name`.

    Raises:
        UsageError: no such image (the nearest names are suggested), or a faulty file.
    """
    return read(_DEFINED.file_of(name))


def every() -> list[Image]:
    """Read the definitions of all images, in the order of their names."""
    return [load(name) for name in names()]


def read(path: Path) -> Image:
    """Read one `image.yaml`; every fault is named at once, with its line."""
    found = strict.load_one(_model, path)
    if isinstance(found, VariantOf):
        other = read(path.parent.parent / found.of / "image.yaml")
        image = other.model_copy(update=_changes(other, found.variant))
        image._variant = found
    else:
        image = cast("Image", found)
    image._folder = path.parent
    missing = [name for name in image.files if not file_of(image, name).is_file()]
    missing += [str(file) for file in build_files(image) if not file.is_file()]
    if missing:
        raise UsageError(
            f"{path}: files: {', '.join(missing)} not found in {path.parent},"
            " nor in containers/selftests"
        )
    return image


def _changes(image: Image, name: str) -> dict[str, Any]:
    """Return the fields in which the variant `name` differs from `image`.

    Raises:
        UsageError: `image` has no Debian and Python to add to.
    """
    adds = strict.load(Variant, variants.file_of(f"{name}.yaml"))
    if image.python is None or not image.debian:
        raise UsageError(f"{image.folder / 'image.yaml'}: a variant needs 'debian' and 'python'")
    kept = tuple(pattern for pattern in image.python.remove if pattern not in adds.keep)
    return {
        "summary": f"{image.name} {adds.summary}",
        "description": f"{image.description.rstrip()} {adds.description}",
        "short": f"{image.short}-{name}",
        "debian": tuple(dict.fromkeys((*image.debian, *adds.debian))),
        "python": image.python.model_copy(update={"remove": kept}),
        "environment": {**image.environment, **adds.environment},
        "files": {**image.files, **adds.files},
        "test": adds.test,
        "help": f"{image.help.rstrip()}\n\n{adds.help}",
    }


def _model(content: object) -> type[strict.Model]:
    return VariantOf if isinstance(content, dict) and "variant" in content else Image


def chain(image: Image) -> list[Image]:
    """Return the images to build, in order: the framework image it stands on, then itself."""
    if image.framework is None:
        return [image]
    beside = image.folder.parent / image.framework / "image.yaml"  # test images lie side by side
    below = read(beside) if beside.is_file() else load(image.framework)
    if below.kind != "framework":
        raise UsageError(f"{image.folder / 'image.yaml'}: framework: {below.name} is an app image")
    return [below, image]


def interpreter(image: Image, version: str | None = None) -> Python:
    """Return the Python of `image`, or as much of another version, which the host engine has.

    Raises:
        UsageError: the locked wheels are not for that version.
    """
    python = chain(image)[0].python
    assert python is not None  # noqa: S101 - a framework image has one
    if version is None:
        return python
    if version not in PYTHONS:
        raise UsageError(
            f"{image.name}: no wheels are locked for Python {version}",
            hint=f"use Python {', '.join(PYTHONS)}, for example: make quickstart "
            f"PYTHON=python{PYTHONS[0]}",
        )
    return python.model_copy(update={"version": version})


def wheels_lock(image: Image) -> Path | None:
    """Return the lock of the wheels that `image` brings itself.

    None: an app image without `requirements.in`, for which those of its framework image are enough.
    """
    brings = image.kind == "framework" or (image.folder / "requirements.in").is_file()
    return image.folder / "requirements.lock" if brings else None


def environment(image: Image) -> dict[str, str]:
    """Return all variables of the image, those of its framework image included.

    Apptainer's `%environment` of a derived image replaces the one below, so each
    definition carries the whole of it.
    """
    merged: dict[str, str] = {}
    for part in chain(image):
        merged |= part.environment
    if image.app is not None:
        merged["PYTHONSAFEPATH"] = "1"  # in all ranks: no module of the folder they run in
    return merged


def caches(image: Image) -> dict[str, str]:
    """Return variable -> folder of caches that each user of the image has for themselves.

    They are for Apptainer, which shares the host's /tmp; a container of Docker has its own.
    """
    own = environment(image)
    return {name: to for name, to in chain(image)[0].caches.items() if name not in own}


def package_folder(name: str) -> Path:
    """Return the folder of the package `apps/<name>`."""
    packages = paths.Definitions("package", ("apps/*/pyproject.toml",), paths.of_folder)
    return packages.file_of(name).parent


def entry(image: Image) -> Entry | None:
    """Return how the app in `image` is started, as its card says; None of a framework image.

    Raises:
        UsageError: its card is not there, or says something that no image can hold.
    """
    if image.app is None:
        return None
    return strict.load(Entry, paths.app(image.app.packages[-1]) / "app.yaml")


def file_of(image: Image, name: str) -> Path:
    """Return the file that `files` of the image calls `name`: its own, else a shared one."""
    own = image.folder / name
    return own if own.is_file() else paths.repository() / "containers/selftests" / name


def self_test(image: Image) -> list[str]:
    """Return what the image's Python is given to test it: the script, and whose GPUs it is for."""
    return [image.test, chain(image)[0].gpu or "none"]


def build_files(image: Image) -> list[Path]:
    """Return the files of the checkout that the image's first stage works with."""
    folder = paths.repository() / "containers/build"
    return [folder / name for name in image.build.files] if image.build else []
