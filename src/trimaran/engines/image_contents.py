"""The inventory of an image: packages, environment, labels, entry point, and hashes of files.

`probe.py` collects the inventory inside the image with the Python of the image; the engine adds
labels and entry point. The inventory is written next to the record of the image when the image is
built. The comparison of two builds, the SBOM, the licences and the largest items are derived from
it.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import Field, ValidationError

from trimaran import paths, strict
from trimaran.engines import BuiltImage, Engine
from trimaran.errors import BuildError
from trimaran.files import set_aside, write_atomic
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.parsing import parse_json

Kind = Literal["debian", "python", "environment", "label", "entry point", "file"]
Reasons = Mapping[tuple[Kind, str], str]
"""A dictionary with the reasons why certain differences between images are harmless.

A key consists of the kind of a difference and a regular expression for its name.
"""

# An engine sets these variables in each container; the image does not contain them.
_OF_THE_ENGINE = re.compile(
    r"(APPTAINER|SINGULARITY)_.*|PS1|PROMPT_COMMAND|HOME|PWD|OLDPWD|SHLVL|_|TERM|LC_CTYPE"
    r"|HOSTNAME|container"
)
_ENGINE_VALUES = {("LANG", "C"), ("LD_LIBRARY_PATH", "/.singularity.d/libs")}
_EXEC = re.compile(r'(?:#!/bin/sh\s+)?exec (.*) "\$@"')

SAME_ENGINE: Reasons = {
    ("label", r"org\.opencontainers\.image\.created"): "the date of the build",
    ("label", r"org\.label-schema\.build-date"): "the date of the build",
    ("label", r"org\.opencontainers\.image\.revision"): "the commit of the checkout",
    ("label", r"org\.opencontainers\.image\.source"): "where the checkout came from",
    ("label", r"org\.label-schema\.usage\.apptainer\.version"): "the version of Apptainer",
    ("label", r"io\.buildah\.version"): "the version of buildah",
}
"""Harmless differences between two images that one engine built from the same lock."""


class DebianPackage(strict.Model):
    """An installed Debian package, as the database of dpkg describes it.

    Attributes:
        licences: licences that the copyright file declares, if it is machine-readable.
        mentioned: licences that the copyright file mentions, if it is plain text.
    """

    name: str
    version: str
    architecture: str
    source: str
    licences: tuple[str, ...]
    mentioned: tuple[str, ...] = ()


class PythonPackage(strict.Model):
    """An installed Python distribution, with the licences that its metadata states."""

    name: str
    version: str
    licences: tuple[str, ...]
    installer: str


class File(strict.Model):
    """A file, folder, link or other path in the root file system of an image.

    Attributes:
        size: size of a file in bytes; 0 for other types.
        sha256: hash of a file; None if `probe.py` may not read the file.
        target: target of a link.
    """

    type: Literal["file", "directory", "link", "other"]
    mode: int
    size: int
    sha256: str | None = None
    target: str | None = None

    @property
    def content(self) -> str:
        """A text with the type, the mode, and the hash or link target, to compare two files."""
        what = self.sha256 or self.target or ""
        return f"{self.type} {self.mode:o} {what}".rstrip()


class Item(strict.Model):
    """A file or folder of an image, and its total size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class Difference:
    """One difference between two images.

    Attributes:
        kind: the kind of the differing item, for example a Python package or a file.
        name: name of the package, variable or label; path of a file.
        before: the version or value in the first image; None: the first image lacks it.
        after: the version or value in the second image; None: the second image lacks it.
        reason: why the difference is harmless; None: there is no known reason.
    """

    kind: Kind
    name: str
    before: str | None
    after: str | None
    reason: str | None

    def __str__(self) -> str:
        before, after = (value or "absent" for value in (self.before, self.after))
        return f"{self.kind} {self.name}: {before} -> {after}"


class Inventory(strict.Model):
    """The content of one image.

    Attributes:
        digest: digest of the image.
        release: the fields of its os-release file.
        entry_point: the command to which the arguments of a run are appended.
        environment: variables of the image, without those that the engine adds to every container.
        files: path -> file, without the paths in `probe.SKIPPED`.
        hidden: paths that could not be read, because the engine mounted something over them.
    """

    schema_: Literal[2] = Field(default=2, alias="schema")
    image: str
    engine: str
    digest: str
    release: dict[str, str]
    python_version: str
    entry_point: str
    environment: dict[str, str]
    labels: dict[str, str]
    debian: tuple[DebianPackage, ...]
    python: tuple[PythonPackage, ...]
    files: dict[str, File]
    hidden: tuple[str, ...]

    @property
    def unpacked(self) -> int:
        """The size of all files in bytes."""
        return sum(file.size for file in self.files.values())

    def largest(self, count: int) -> list[Item]:
        """Return the `count` largest items.

        An item is a Python package, or a file or folder outside of the Python packages. Files
        deeper than three levels below the root are counted as part of a folder at the third level.
        """
        sizes: dict[str, int] = {}
        for path, file in self.files.items():
            if file.type == "file":
                item = _item(path)
                sizes[item] = sizes.get(item, 0) + file.size
        ordered = sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0]))
        return [Item(path=path, size=size) for path, size in ordered[:count]]

    def differences(self, other: Inventory, reasons: Reasons = SAME_ENGINE) -> list[Difference]:
        """Return the differences between this image and `other`.

        If `reasons` contains a reason why a difference is harmless, the difference includes it.
        """
        sides: list[tuple[Kind, Mapping[str, str], Mapping[str, str]]] = [
            ("debian", _debian(self), _debian(other)),
            ("python", _python(self), _python(other)),
            ("environment", self.environment, other.environment),
            ("label", self.labels, other.labels),
            ("entry point", {"command": self.entry_point}, {"command": other.entry_point}),
            ("file", {path: file.content for path, file in self.files.items()},
             {path: file.content for path, file in other.files.items()}),
        ]
        hidden = {*self.hidden, *other.hidden}
        return [
            Difference(kind, name, first.get(name), second.get(name), _reason(reasons, kind, name))
            for kind, first, second in sides
            for name in sorted({*first, *second})
            if first.get(name) != second.get(name)
            and not (kind == "file" and hidden & {name, *map(str, PurePosixPath(name).parents)})
        ]


def of(engine: Engine, built: BuiltImage) -> Inventory:
    """Return the stored inventory of `built`, or else collect and store it."""
    return load(built) or record(engine, built)


def record(engine: Engine, built: BuiltImage) -> Inventory:
    """Collect the inventory of `built`, and store it next to the record of the image."""
    found = collect(engine, built)
    path = place(built)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        set_aside(path)
    text = found.model_dump_json(by_alias=True, exclude_none=True)
    write_atomic(path, gzip.compress(text.encode(), compresslevel=1, mtime=0))
    return found


def load(built: BuiltImage) -> Inventory | None:
    """Return the stored inventory of `built`.

    Return None if it is missing, is damaged, or describes an image with another digest.
    """
    try:
        found = Inventory.model_validate_json(gzip.decompress(place(built).read_bytes()))
    except (OSError, EOFError, ValidationError, zlib.error):
        return None  # missing, damaged, or written by another version
    return found if found.digest == built.digest else None


def place(built: BuiltImage) -> Path:
    """Return the path of the stored inventory of `built`."""
    name = f"{built.name}-{built.inputs[:12]}.{built.engine}.inventory.json.gz"
    return paths.cache("images", name)


def collect(engine: Engine, built: BuiltImage) -> Inventory:
    """Collect the inventory of `built`.

    Raises:
        UsageError: the engine is the host, which has no images.
        BuildError: the Python of the image fails, or its output is not an inventory.
    """
    description = engine.described(built)
    script = resources.files("trimaran.engines").joinpath("probe.py").read_text(encoding="utf-8")
    printed = engine.inside(built, ["-I", "-c", script])
    entry_point = description.entry_point.strip()
    command = _EXEC.fullmatch(entry_point)
    try:
        facts = parse_json(printed)
        facts["environment"] = _own(facts["environment"])
        return Inventory.model_validate({
            **facts, "image": built.name, "engine": built.engine, "digest": built.digest,
            "labels": description.labels,
            "entry_point": command.group(1) if command else entry_point,
        })
    except (ValueError, KeyError) as error:  # pydantic's error is a ValueError
        raise BuildError(f"{built.reference}: the output of the probe cannot be read: {error}",
                         code="image-invalid") from error


def unexplained(differences: Iterable[Difference]) -> list[Difference]:
    """Return the differences for which no harmless reason is known."""
    return [difference for difference in differences if difference.reason is None]


def _own(environment: Mapping[str, str]) -> dict[str, str]:
    return {  # an empty variable counts as unset: Apptainer cannot unset a variable
        key: value for key, value in sorted(environment.items())
        if value and not _OF_THE_ENGINE.fullmatch(key) and (key, value) not in _ENGINE_VALUES
    }


def _debian(inventory: Inventory) -> dict[str, str]:
    return {f"{p.name}:{p.architecture}": p.version for p in inventory.debian}


def _python(inventory: Inventory) -> dict[str, str]:
    return {package.name: package.version for package in inventory.python}


def _reason(reasons: Reasons, kind: Kind, name: str) -> str | None:
    for (of_kind, pattern), reason in reasons.items():
        if of_kind == kind and re.fullmatch(pattern, name):
            return reason
    return None


def _item(path: str) -> str:
    parts = PurePosixPath(path).parts
    depth = 4
    if "site-packages" in parts:
        depth = parts.index("site-packages") + 2
        if parts[depth - 1] == "nvidia":  # many packages share this folder
            depth += 1
    return str(PurePosixPath(*parts[:depth]))

def lacks_horovod(engine: Engine, image: Image, built: BuiltImage) -> bool:
    """Return whether `built`, an image of the definition `image`, was built without Horovod."""
    if not engine.container or not definition.can_lack_horovod(image):
        return False
    return engine.described(built).labels.get(definition.HOROVOD_LABEL) == "no"
