"""Image definitions: the strict models of `containers/**/image.yaml` and of variants.

A framework image is built on a base image and contains Debian packages and locked Python wheels.
An app image is built on a framework image and contains packages of this repository. The wheels of
a framework image are listed in `requirements.in` and `requirements.lock`; an app image has these
files only if it needs wheels that its framework image lacks. The name of an image is the name of
its folder.

`containers/variants/NAME.yaml` defines what the variant NAME adds to any framework image, and
NAME.in lists its wheels. An `image.yaml` with `variant` and `of` applies a variant to one framework
image; its folder contains the locks.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, PrivateAttr, model_validator

from trimaran import __version__, paths, strict
from trimaran.architectures import ARCHITECTURES, Architecture, ending, native
from trimaran.errors import UsageError
from trimaran.images.parts import (
    PYTHONS,
    REFUSED_KEYS,
    App,
    Build,
    Entry,
    Gpu,
    GpuArchitecture,
    Lines,
    Megabytes,
    Name,
    Place,
    Plain,
    Python,
    RegistryBase,
    Relative,
    Source,
    Variable,
)
from trimaran.images.variants import Variant, VariantOf, variant_file


class Image(strict.Model):
    """The content of the `image.yaml` of one image.

    Attributes:
        base: framework images only: the image of a registry to build on.
        framework: app images only: name of the framework image to build on.
        short: framework images only: framework and version, for tags (`torch2.13-cpu`).
        architectures: framework images only: the processor architectures for which the image can
            be built; an app image can be built for the same ones.
        lacks: framework images only: for each other architecture, why no image exists.
        qemu: framework images only: oldest version of QEMU that can emulate the image.
        debian: Debian packages to install; `debian.lock` also lists their dependencies.
        security: lock Debian's security updates, too (see `resolve.debian` for the drawback).
        python: framework images only: the interpreter.
        gpu: framework images only: vendor of the supported GPUs (see `engines.commands`).
        gpu_architectures: with `gpu` only: architecture of the processor -> kinds of GPU for which
            the code was compiled; `trimaran doctor` compares them with the GPUs of a node. Empty
            if they are unknown.
        build: a first build stage that compiles software.
        environment: variables that are set in the running container.
        caches: framework images only: variable -> folder below the user's `~/.cache`. The folder
            replaces a library's default in /tmp, which another user could create (see `caches`).
        compiler_caches: framework images only: variable -> folder for code that a library compiles
            while it runs; below a folder of the run, of the job or of the node (see `render`).
        files: file in this folder or in `containers/selftests/` -> path in the image.
        test: the path in `files` that is the self-test (see `self_test`).
        max_megabytes: architecture -> largest allowed size of the SIF in MB (10^6 bytes), which
            `test-image` and `publish` check; without a size, any is allowed.
    """

    schema_: Literal[1] = Field(alias="schema")
    summary: Plain
    description: Lines
    version: Plain
    licenses: Plain
    base: RegistryBase | None = None
    framework: Name | None = None
    short: Name | None = None
    architectures: tuple[Architecture, ...] = ()
    lacks: dict[Architecture, Plain] = Field(default_factory=dict)
    qemu: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    gpu: Gpu | None = None
    gpu_architectures: dict[Architecture, tuple[GpuArchitecture, ...]] = Field(default_factory=dict)
    debian: tuple[Name, ...] = ()
    security: bool = False
    python: Python | None = None
    build: Build | None = None
    environment: dict[Variable, Plain] = Field(default_factory=dict)
    caches: dict[Variable, Relative] = Field(default_factory=dict)
    compiler_caches: dict[Variable, Relative] = Field(default_factory=dict)
    files: dict[Relative, Place] = Field(default_factory=dict)
    test: Place
    app: App | None = None
    max_megabytes: dict[Architecture, Megabytes] = Field(default_factory=dict)
    help: Lines

    _folder: Path = PrivateAttr(default=Path())
    _variant: VariantOf | None = PrivateAttr(default=None)
    _architecture: Architecture = PrivateAttr(default_factory=native)

    @model_validator(mode="before")
    @classmethod
    def _one_meaning(cls, content: Any) -> Any:
        for key, reason in REFUSED_KEYS.items():
            if isinstance(content, dict) and key in content:
                raise ValueError(f"'{key}' is not allowed: {reason}")
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
                f"environment: {', '.join(shared)}: another user can create the same name in /tmp;"
                " remove the variable, or use 'caches' or 'compiler_caches'"
            )
        if self.test not in self.files.values():
            raise ValueError(f"test: {self.test} is not one of the paths in 'files'")
        places = sorted(self.files.values())
        for above, below in itertools.pairwise(places):
            if below == above or below.startswith(f"{above}/"):
                raise ValueError(f"files: {below} cannot lie below the file {above}")
        return self

    @model_validator(mode="after")
    def _buildable(self) -> Image:
        if self.base is None or self.python is None:
            return self
        if sorted([*self.architectures, *self.lacks]) != sorted(ARCHITECTURES):
            raise ValueError("name each architecture once, in 'architectures' or, with the reason,"
                             f" in 'lacks': {', '.join(ARCHITECTURES)}")
        debian = self.base.suite is not None
        if self.gpu_architectures and self.gpu is None:
            raise ValueError("'gpu_architectures' needs 'gpu'")
        if self.gpu_architectures and sorted(self.gpu_architectures) != sorted(self.architectures):
            raise ValueError("name in 'gpu_architectures' the same ones as in 'architectures'")
        if debian != bool(self.debian):
            raise ValueError("give both 'debian' and 'base.suite', or neither: packages are locked"
                             " for a suite")
        if debian == (self.python.base is not None):
            raise ValueError("give 'python.base' if the base image contains Python, else omit it")
        if self.build and self.build.optional and self.gpu != "amd":
            raise ValueError("build.optional: allowed with 'gpu: amd' only; in other images, a"
                             " failed build of Horovod is an error")
        if self.build and self.build.debian and not debian:
            raise ValueError("build.debian: the base image is not a Debian; use build.sources")
        return self

    @property
    def name(self) -> str:
        """The name of the image, which is the name of its folder."""
        return self._folder.name

    @property
    def folder(self) -> Path:
        """The folder that holds `image.yaml` and the locks."""
        return self._folder

    @property
    def variant(self) -> VariantOf | None:
        """The variant and the image that it extends; None if the image is not a variant."""
        return self._variant

    @property
    def architecture(self) -> Architecture:
        """The architecture of the image: by default this machine's; `on` sets another one."""
        return self._architecture

    @property
    def size_limit(self) -> int | None:
        """The largest allowed size of the SIF in MB; None: any."""
        return self.max_megabytes.get(self._architecture)

    @property
    def tag(self) -> str:
        """The tag of a release in a registry: version of Trimaran, framework and its version.

        It names the images for all architectures.
        """
        return f"{__version__}-{chain(self)[0].short}"

    @property
    def kind(self) -> Literal["framework", "app"]:
        """The kind of the image: framework image or app image."""
        return "framework" if self.framework is None else "app"


def _only_in_frameworks(image: Image) -> None:
    keys = ("short", "architectures", "lacks", "qemu", "gpu", "gpu_architectures", "debian",
            "python", "build", "caches", "compiler_caches")
    if given := [key for key in keys if getattr(image, key)]:
        raise ValueError(f"{', '.join(given)}: allowed in framework images only")


_SHARED = re.compile(r"(?:^|:)/(?:var/)?tmp(?:/|$)")


_DEFINED = paths.Definitions(
    "image", ("containers/frameworks/*/image.yaml", "containers/apps/*/image.yaml"),
    paths.of_folder,
)
names = _DEFINED.names


def load(name: str) -> Image:
    """Read the definition of the image called `name`.

    Raises:
        UsageError: No image has this name (similar names are suggested), or its file has faults.
    """
    return read(_DEFINED.file_of(name))


def every() -> list[Image]:
    """Read the definitions of all images, in the order of their names."""
    return [load(name) for name in names()]


def read(path: Path) -> Image:
    """Read one `image.yaml`.

    Raises:
        UsageError: The file has faults; the message lists all of them with their lines.
    """
    content = strict.load_one(_model, path)
    if isinstance(content, VariantOf):
        other = read(path.parent.parent / content.of / "image.yaml")
        image = other.model_copy(update={
            **_changes(other, content.variant), "max_megabytes": content.max_megabytes})
        image._variant = content
    else:
        image = cast("Image", content)
    image._folder = path.parent
    missing = [name for name in image.files if not file_of(image, name).is_file()]
    missing += [str(file) for file in build_files(image) if not file.is_file()]
    if missing:
        raise UsageError(
            f"{path}: files: {', '.join(missing)} not found in {path.parent},"
            " nor in containers/selftests", code="file-missing",
        )
    return image


def _changes(image: Image, name: str) -> dict[str, Any]:
    """Return the fields of `image` that the variant `name` changes, with their new values.

    Raises:
        UsageError: the file of the variant has faults, or `image` cannot have variants.
    """
    adds = strict.load(Variant, variant_file(f"{name}.yaml"))
    if image.python is None or not image.debian:
        raise UsageError(f"{image.folder / 'image.yaml'}: a variant needs 'debian' and 'python'",
                         code="file-invalid")
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
    """Return the images to build, in order: the framework image of an app image, then `image`."""
    if image.framework is None:
        return [image]
    # Images of tests are outside `containers/`.
    beside = image.folder.parent / image.framework / "image.yaml"
    below = read(beside) if beside.is_file() else load(image.framework)
    below._architecture = image.architecture
    if below.kind != "framework":
        raise UsageError(f"{image.folder / 'image.yaml'}: framework: {below.name} is an app image",
                         code="file-invalid", hint="name a framework image")
    return [below, image]


def on(image: Image, architecture: Architecture) -> Image:
    """Return `image` for an architecture.

    Raises:
        UsageError: No such image can be built; the message gives the reason.
    """
    other = image.model_copy()
    other._architecture = architecture
    require_architecture(other)
    return other


def require_architecture(image: Image) -> None:
    """Raise UsageError if `image` cannot be built for its architecture, with the reason."""
    wanted, framework = image.architecture, chain(image)[0]
    if wanted not in framework.architectures:
        raise UsageError(
            f"{image.name} has no image for {wanted}: {framework.lacks[wanted]}",
            code="architecture-unsupported",
            hint=f"images for {wanted}: " + ", ".join(
                name for name in names() if wanted in chain(load(name))[0].architectures),
        )


def lock_name(image: Image, name: str) -> str:
    """Return the file name of the lock `name` of Debian packages for the image's architecture.

    The locks for amd64 are `debian.lock` and `build-debian.lock`; the names of other locks also
    contain the architecture (`debian.arm64.lock`).
    """
    return name.replace(".lock", f"{ending(image.architecture, '.')}.lock")


def locks(image: Image) -> tuple[str, ...]:
    """Return the file names of all locks that an image can have; a file may be missing."""
    return (*(lock_name(image, name) for name in DEBIAN_LOCKS), "requirements.lock")


def build_sources(image: Image) -> list[Source]:
    """Return the files that the first build stage downloads for the image's architecture."""
    sources = image.build.sources if image.build else ()
    return [one for one in sources if one.architecture in (None, image.architecture)]


def interpreter(image: Image, version: str | None = None) -> Python:
    """Return the Python of `image`.

    If `version` is given, it replaces the version in the definition: the host engine passes the
    version of the host's Python.

    Raises:
        UsageError: The lock has no wheels for that version.
    """
    python = chain(image)[0].python
    assert python is not None  # noqa: S101 - a framework image has one
    if version is None:
        return python
    if version not in PYTHONS:
        raise UsageError(
            f"{image.name}: no wheels are locked for Python {version}", code="python-unsupported",
            hint=f"use Python {', '.join(PYTHONS)}, for example: make quickstart "
            f"PYTHON=python{PYTHONS[0]}",
        )
    return python.model_copy(update={"version": version})


def wheels_lock(image: Image) -> Path | None:
    """Return the path of the wheel lock of `image`.

    Return None for an app image without `requirements.in`, because the wheels of its framework
    image are sufficient.
    """
    brings = image.kind == "framework" or (image.folder / "requirements.in").is_file()
    return image.folder / "requirements.lock" if brings else None


def environment(image: Image) -> dict[str, str]:
    """Return all variables of the image, including those of its framework image.

    In Apptainer, the `%environment` of an app image replaces the `%environment` of its framework
    image, so each definition contains all variables.
    """
    merged: dict[str, str] = {}
    for part in chain(image):
        merged |= part.environment
    if image.app is not None:
        merged["PYTHONSAFEPATH"] = "1"  # no imports from the working directory
    return merged


def caches(image: Image) -> dict[str, str]:
    """Return environment variable -> folder of a library's cache, relative to the user's cache.

    Only Apptainer needs these variables, because it shares the host's /tmp.
    """
    return _not_set(image, chain(image)[0].caches)


def compiler_caches(image: Image) -> dict[str, str]:
    """Return the folders for compiled code, by environment variable.

    Only Apptainer needs these variables, because it shares the host's home folder and /tmp.
    """
    return _not_set(image, chain(image)[0].compiler_caches)


def _not_set(image: Image, folders: dict[str, str]) -> dict[str, str]:
    own = environment(image)
    return {name: to for name, to in folders.items() if name not in own}


def package_folder(name: str) -> Path:
    """Return the folder `apps/<name>` of a package."""
    packages = paths.Definitions("package", ("apps/*/pyproject.toml",), paths.of_folder)
    return packages.file_of(name).parent


def entry(image: Image) -> Entry | None:
    """Return the Python module and the subcommands of the app in `image`, from its `app.yaml`.

    Return None if `image` contains only a framework and no app.

    Raises:
        UsageError: The app card `app.yaml` is missing or invalid.
    """
    if image.app is None:
        return None
    return strict.load(Entry, paths.app(image.app.packages[-1]) / "app.yaml")


def file_of(image: Image, name: str) -> Path:
    """Return the path of the entry `name` of `files`.

    It is a file in the image's folder, or else in `containers/selftests`.
    """
    own = image.folder / name
    return own if own.is_file() else paths.repository() / "containers/selftests" / name


def self_test(image: Image) -> list[str]:
    """Return the arguments of Python for the self-test: the script and the vendor of the GPUs."""
    return [image.test, chain(image)[0].gpu or "none"]


HOROVOD_LABEL = "trimaran.horovod"
"""Label that states whether an image contains Horovod: "yes" or "no".

Only images that can be built without Horovod have this label.
"""


def can_lack_horovod(image: Image) -> bool:
    """Return whether `image` can be built without Horovod, with the build argument HOROVOD=no."""
    build = chain(image)[0].build
    return build is not None and build.optional


def build_files(image: Image) -> list[Path]:
    """Return the files of the checkout that the first build stage of `image` uses."""
    folder = paths.repository() / "containers/build"
    return [folder / name for name in image.build.files] if image.build else []


DEBIAN_LOCKS = ("debian.lock", "build-debian.lock")
"""File names of the locks of Debian packages for amd64 (see `lock_name`)."""
