"""What is inside a built image: packages, environment, labels, entry point, every file's digest.

`probe.py` collects it inside the image with the image's own Python, the engine adds
labels and entry point. It is kept beside the image's record when the image is built,
and everything that is said about an image's content comes from it: what two builds
differ in, the SBOM, the licences, the largest items.
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
from trimaran.parsing import parse_json

Kind = Literal["debian", "python", "environment", "label", "entry point", "file"]
Reasons = Mapping[tuple[Kind, str], str]
"""(kind, pattern that the whole name matches) -> why that may differ without harm."""

# Set by an engine for each container, not by the image.
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
"""What may differ between two builds from one lock by one engine."""


class DebianPackage(strict.Model):
    """An installed Debian package, as dpkg knows it.

    Attributes:
        licences: declared by a machine-readable copyright file.
        mentioned: in the running text of any other.
    """

    name: str
    version: str
    architecture: str
    source: str
    licences: tuple[str, ...]
    mentioned: tuple[str, ...] = ()


class PythonPackage(strict.Model):
    """An installed Python distribution; licences as its metadata states them."""

    name: str
    version: str
    licences: tuple[str, ...]
    installer: str


class File(strict.Model):
    """One path of the root file system.

    Attributes:
        size: of a file, in bytes; else 0.
        sha256: of a file; None where the probe's user may not read it.
        target: of a link.
    """

    type: Literal["file", "directory", "link", "other"]
    mode: int
    size: int
    sha256: str | None = None
    target: str | None = None

    @property
    def content(self) -> str:
        """What decides whether two files are the same, as text."""
        what = self.sha256 or self.target or ""
        return f"{self.type} {self.mode:o} {what}".rstrip()


class Item(strict.Model):
    """A file or a folder, with all that is below it, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class Difference:
    """One thing that two images differ in.

    Attributes:
        before: in the first one; None when it is not there.
        after: in the second one.
        reason: why it is no harm; None when nothing explains it.
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
    """All that is inside one image.

    Attributes:
        digest: of the image that this was collected from.
        release: the fields of its os-release file.
        entry_point: the command that the arguments of a run are added to.
        environment: without the variables that the engine adds to every container.
        files: path -> what is there, without what no image has of its own (`probe.SKIPPED`).
        hidden: places where the engine put something over the image, so not seen.
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
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    def largest(self, count: int) -> list[Item]:
        """Return the largest items: Python packages, else folders three levels deep."""
        sizes: dict[str, int] = {}
        for path, file in self.files.items():
            if file.type == "file":
                item = _item(path)
                sizes[item] = sizes.get(item, 0) + file.size
        ordered = sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0]))
        return [Item(path=path, size=size) for path, size in ordered[:count]]

    def differences(self, other: Inventory, reasons: Reasons = SAME_ENGINE) -> list[Difference]:
        """Return what `other` has otherwise, each with its reason if `reasons` has one."""
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
    """Return the inventory of `built`: the one that is kept, else collected and kept now."""
    return load(built) or record(engine, built)


def record(engine: Engine, built: BuiltImage) -> Inventory:
    """Collect the inventory of `built` and keep it beside the image's record."""
    found = collect(engine, built)
    path = place(built)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        set_aside(path)
    text = found.model_dump_json(by_alias=True, exclude_none=True)
    write_atomic(path, gzip.compress(text.encode(), compresslevel=1, mtime=0))
    return found


def load(built: BuiltImage) -> Inventory | None:
    """Return the inventory that was kept of exactly these bytes, or None."""
    try:
        found = Inventory.model_validate_json(gzip.decompress(place(built).read_bytes()))
    except (OSError, EOFError, ValidationError, zlib.error):
        return None  # never collected, damaged, or of another version of the tool
    return found if found.digest == built.digest else None


def place(built: BuiltImage) -> Path:
    """Return where the inventory of `built` is kept."""
    name = f"{built.name}-{built.inputs[:12]}.{built.engine}.inventory.json.gz"
    return paths.cache("images", name)


def collect(engine: Engine, built: BuiltImage) -> Inventory:
    """Look into `built`.

    Raises:
        UsageError: the engine is the host, which has no images.
        BuildError: the image's Python does not run, or prints something else.
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
        raise BuildError(f"{built.reference}: the look inside failed: {error}") from error


def unexplained(differences: Iterable[Difference]) -> list[Difference]:
    """Return those that have no reason."""
    return [difference for difference in differences if difference.reason is None]


def _own(environment: Mapping[str, str]) -> dict[str, str]:
    return {  # an empty one is as good as none: Apptainer cannot unset what the host has set
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
        if parts[depth - 1] == "nvidia":  # a folder that many packages share
            depth += 1
    return str(PurePosixPath(*parts[:depth]))
