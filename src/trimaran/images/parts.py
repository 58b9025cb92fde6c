"""The parts of an image definition, and the keys and values that it must not contain.

A definition is rendered for Apptainer and Docker. Keys and values that have different meanings in
the two formats, or that one of the formats does not have, are rejected with a message.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from trimaran import strict
from trimaran.architectures import Architecture
from trimaran.strict import Digest, Sha256

VENV = "/opt/trimaran"
"""Path of the virtual environment inside every image."""

PythonVersion = Literal["3.11", "3.12", "3.13"]
PYTHONS = get_args(PythonVersion)
"""The versions of Python that locks support, in images and with the host engine."""

Gpu = Literal["nvidia", "amd"]

REFUSED_KEYS = {
    "user": "Apptainer runs as the user who calls it, Docker as the user named here",
    "workdir": "Apptainer ignores it and starts in the caller's folder; runs set their own",
    "cmd": "Apptainer adds it to the entry point, Docker lets arguments replace it",
    "volumes": "Apptainer has no volumes; runs bind their data",
    "expose": "Apptainer shares the host's network by default",
    "healthcheck": "Apptainer has no health checks; use 'test'",
    "shell": "%post and RUN use /bin/sh in both formats",
}
"""The Dockerfile keys that are not allowed, with the reason for each key."""

SET_AT_START = re.compile(
    r"(HOME|PWD|OLDPWD|USER|LOGNAME|SHELL|HOSTNAME|TERM|PS1|PROMPT_COMMAND|LD_LIBRARY_PATH"
    r"|(APPTAINER|SINGULARITY|APPTAINERENV|SINGULARITYENV)_?.*)"
)
HIDDEN = ("/dev", "/home", "/mnt", "/proc", "/root", "/run", "/sys", "/tmp", "/var/tmp")  # noqa: S108


def _settable(name: str) -> str:
    if SET_AT_START.fullmatch(name):
        raise ValueError(
            f"{name} is not allowed: Apptainer and Docker set it to different values at the start"
        )
    return name


def _visible(place: str) -> str:
    if any(place == folder or place.startswith(f"{folder}/") for folder in HIDDEN):
        raise ValueError(f"{place}: Apptainer hides this folder by a mount, Docker does not")
    if place.endswith("/"):
        raise ValueError(f"{place}: give the path of a file: Apptainer and Docker copy into folders"
                         " differently")
    return place


SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The default value of PATH on a Debian system."""

# Characters with a special meaning for a shell, Docker or Apptainer's templates are errors; they
# are not escaped, so that the text is the same in both formats.
Plain = Annotated[str, Field(pattern=r"^[^\n\r\"'\\$`{}]+$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]*$")]
Verb = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
Module = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_settable)]
Absolute = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$")]
Place = Annotated[Absolute, AfterValidator(_visible)]
Relative = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._/-]*$")]
Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_*-][A-Za-z0-9._*/+!\[\]-]*$")]
Url = Annotated[str, Field(pattern=r"^https?://[^\s\"'\\$`{}]+$")]
Lines = Annotated[str, Field(pattern=r"^[^\"'\\$`{}%]+$")]
Suite = Annotated[str, Field(pattern=r"^[a-z]+$")]
GpuArchitecture = Annotated[str, Field(pattern=r"^((sm|compute)_[1-9][0-9]{1,2}|gfx[0-9a-f]+)$")]
"""Kind of GPU: `sm_90` (NVIDIA's machine code), `compute_90` (code that the driver compiles), or
`gfx90a` (AMD)."""
Megabytes = Annotated[int, Field(gt=0)]


class RegistryBase(strict.Model):
    """A base image in a registry.

    Attributes:
        image: image reference with a tag, for readers; the digest determines which image is used.
        digest: digest of the image; null if the user must give it (`--base NAME@sha256:…`).
        suite: Debian release of the image, or null if it is not a Debian image. If the registry
            cannot be reached, an image of this release is assembled instead.
    """

    image: Plain
    digest: Digest | None
    suite: Suite | None


class Source(strict.Model):
    """A file to download.

    Attributes:
        url: its official address.
        architecture: the only architecture that needs the file; None: all need it.
    """

    url: Url
    sha256: Sha256
    architecture: Architecture | None = None


class Python(strict.Model):
    """The interpreter of the image, and wheels that are not on PyPI.

    Attributes:
        version: minor version of the interpreter in the image, for which wheels are chosen.
        elsewhere: wheels that are not on PyPI, for each architecture and version of Python. The
            versions are `version`, and those supported by runs without a container (engine `host`).
        base: interpreter in a vendor's base image; its packages remain importable.
        remove: shell patterns of files in site-packages that a running image does not need; the
            build fails if a pattern matches no file.
        remove_where_present: the same for files that the wheels of one architecture lack.
    """

    version: PythonVersion
    elsewhere: tuple[Source, ...] = ()
    base: Absolute | None = None
    remove: tuple[Pattern, ...] = ()
    remove_where_present: tuple[Pattern, ...] = ()


class Build(strict.Model):
    """A first build stage that compiles software.

    The stage has the Debian packages and wheels of the image; `sources` and `files` are in
    /mnt/build. Its script writes to /opt/stage. Only the folders `bin` and `lib` there are copied
    into the virtual environment of the image.

    Attributes:
        debian: packages of this stage only; `build-debian.lock` lists them and their dependencies.
        sources: files to download.
        files: names of files in `containers/build/`.
        environment: variables of the script.
        script: the entry of `files` that /bin/sh runs.
        check: the entry of `files` that checks the base image before anything is installed on it.
            The program python3 of the base image runs it, with the argument `base`; the variable
            PYTHON is the path of the Python that the image extends.
        optional: images of AMD only: the image can be built without Horovod. The script gets the
            build argument HOROVOD, "yes" or "no", in a variable of this name.
    """

    debian: tuple[Name, ...] = ()
    sources: tuple[Source, ...] = ()
    files: tuple[Relative, ...] = Field(min_length=1)
    environment: dict[Variable, Plain] = Field(default_factory=dict)
    script: Relative
    check: Relative | None = None
    optional: bool = False

    @model_validator(mode="after")
    def _complete(self) -> Build:
        if self.script not in self.files:
            raise ValueError(f"script: {self.script} is not listed in 'files'")
        if self.check is not None and self.check not in self.files:
            raise ValueError(f"check: {self.check} is not listed in 'files'")
        return self


class App(strict.Model):
    """The packages of this repository in an app image.

    Attributes:
        packages: folders below `apps/`, installed in this order and without dependencies; the
            last one is the app (see `Entry`).
    """

    packages: tuple[Name, ...] = Field(min_length=1)

    @field_validator("packages")
    @classmethod
    def _shards_before_trainkit(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        """Raise ValueError if `shards` does not precede `trainkit`, which imports `shards`."""
        before = packages[:packages.index("trainkit")] if "trainkit" in packages else ("shards",)
        if "shards" not in before:
            raise ValueError("'trainkit' needs 'shards' before it: [shards, trainkit, ...]")
        return packages


class Entry(strict.Model, extra="ignore"):
    """The keys of the app card, `apps/APP/app.yaml`, that an image uses.

    Attributes:
        module: Python module of the entry point, `python -m MODULE`.
        verbs: verb -> one line of help; each verb becomes a SCIF app of the SIF.
    """

    module: Module
    verbs: dict[Verb, Plain] = Field(min_length=1)
