"""The parts of an image definition, and what a definition may not say.

Everything here is rendered into two formats. What Apptainer and Docker mean
differently, or what one of them cannot say, is refused with the reason.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from trimaran import strict
from trimaran.strict import Digest, Sha256

VENV = "/opt/trimaran"
"""The virtual environment inside every image."""

PythonVersion = Literal["3.11", "3.12", "3.13"]
PYTHONS = get_args(PythonVersion)
"""What locks are for: the Python of an image, and any that the host engine runs on."""

Gpu = Literal["nvidia", "amd"]

REFUSED_KEYS = {
    "user": "Apptainer runs as the user who calls it, Docker as the one named here",
    "workdir": "Apptainer starts in the caller's folder and ignores it; runs set their own",
    "cmd": "Apptainer joins it with the entry point, Docker replaces it by the arguments",
    "volumes": "Apptainer has none; runs bind their data",
    "expose": "Apptainer shares the host's network, unless told otherwise",
    "healthcheck": "Apptainer has none; use 'test'",
    "shell": "%post and RUN use /bin/sh in both formats",
}
"""Keys known from Dockerfiles that would mean two things, or nothing in one format."""

SET_AT_START = re.compile(
    r"(HOME|PWD|OLDPWD|USER|LOGNAME|SHELL|HOSTNAME|TERM|PS1|PROMPT_COMMAND|LD_LIBRARY_PATH"
    r"|(APPTAINER|SINGULARITY|APPTAINERENV|SINGULARITYENV)_?.*)"
)
HIDDEN = ("/dev", "/home", "/mnt", "/proc", "/root", "/run", "/sys", "/tmp", "/var/tmp")  # noqa: S108


def _settable(name: str) -> str:
    if SET_AT_START.fullmatch(name):
        raise ValueError(
            f"{name} is set when a container starts, by Apptainer and Docker to different values"
        )
    return name


def _visible(place: str) -> str:
    if any(place == folder or place.startswith(f"{folder}/") for folder in HIDDEN):
        raise ValueError(f"{place}: Apptainer mounts something of its own there, Docker does not")
    if place.endswith("/"):
        raise ValueError(f"{place}: name the file: Apptainer and Docker nest folders differently")
    return place


SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where a Debian looks for programs."""

# Characters that would mean something else to a shell, to Docker or to Apptainer's
# templates are refused instead of escaped: one rule, the same text in both formats.
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


class RegistryBase(strict.Model):
    """A base image in a registry.

    Attributes:
        image: reference with a tag, for people; the digest decides.
        digest: null: the user gives it (`--base NAME@sha256:…`); nothing is built without.
        suite: the Debian release in it; assembled instead where no registry is reachable.
    """

    image: Plain
    digest: Digest | None
    suite: Suite | None


class Source(strict.Model):
    """A file by its official address and hash."""

    url: Url
    sha256: Sha256


class Python(strict.Model):
    """The interpreter of the image, and wheels from elsewhere than PyPI.

    Attributes:
        version: the minor version that the Debian packages bring; chooses the wheels.
        elsewhere: wheels by official address, for this and other versions (host engine).
        base: interpreter of the base image whose packages stay visible (vendor images).
        remove: what of site-packages nobody uses when the image runs, as shell patterns.
    """

    version: PythonVersion
    elsewhere: tuple[Source, ...] = ()
    base: Absolute | None = None
    remove: tuple[Pattern, ...] = ()


class Build(strict.Model):
    """A first stage that compiles; nothing of it but `bin` and `lib` of its product stays.

    The stage has the Debian packages and wheels of the image, and sees `sources` and
    `files` in /mnt/build. Its script leaves a tree in /opt/stage that becomes part of
    the image's virtual environment.

    Attributes:
        debian: packages for this stage alone; `build-debian.lock` has what they add.
        sources: files from elsewhere.
        files: names in `containers/build/`.
        environment: variables of the script.
        script: which of `files` is run, by /bin/sh.
    """

    debian: tuple[Name, ...] = ()
    sources: tuple[Source, ...] = ()
    files: tuple[Relative, ...] = Field(min_length=1)
    environment: dict[Variable, Plain] = Field(default_factory=dict)
    script: Relative

    @model_validator(mode="after")
    def _complete(self) -> Build:
        if self.script not in self.files:
            raise ValueError(f"script: {self.script} is not among 'files'")
        return self


class App(strict.Model):
    """What an app image adds: packages of this repository.

    Attributes:
        packages: folders under `apps/`, installed without dependencies, in this order; the last
            one is the app (see `Entry`).
    """

    packages: tuple[Name, ...] = Field(min_length=1)


class Entry(strict.Model, extra="ignore"):
    """What an image takes of its app's own description, `apps/APP/app.yaml`.

    Attributes:
        module: `python -m MODULE` is the entry point.
        verbs: verb -> one line of help; each becomes a SCIF app of the SIF.
    """

    module: Module
    verbs: dict[Verb, Plain] = Field(min_length=1)
