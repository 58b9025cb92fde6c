"""Read the locks of an image: `requirements.lock` (wheels) and `debian.lock`.

`requirements.lock` has pip's format with hashes. Every line of `debian.lock` has the SHA-256 of a
file, which is on deb.debian.org, or on snapshot.debian.org after Debian has replaced it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from trimaran.architectures import MACHINES, Architecture
from trimaran.errors import UsageError
from trimaran.images.parts import Source
from trimaran.net import DEBIAN, SNAPSHOT

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHIVES = {
    "debian": (f"{DEBIAN}/debian", "{suite}"),
    "debian-security": (f"{DEBIAN}/debian-security", "{suite}-security"),
}
"""A dictionary that maps each Debian archive to the URL of its mirror, and its suite's name."""

LINE = re.compile(r"(\S+ +){2}(?P<archive>\S+) +\S+ +(?P<path>\S+) +[0-9]{1,15} +[0-9a-f]{64}")
"""The pattern of a line of `debian.lock`."""


@dataclass(frozen=True)
class Locked:
    """One requirement of a lock: pinned version, environment marker and accepted SHA-256 hashes."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]

    def applies_to(self, python: str, architecture: Architecture) -> bool:
        """Return whether this requirement is installed for `python` ("3.11") on Linux."""
        return self.marker is None or Marker(self.marker).evaluate(_linux(python, architecture))


@dataclass(frozen=True)
class DebianPackage:
    """One line of `debian.lock`: a file of the Debian archive.

    Attributes:
        archive: key of `ARCHIVES`.
        snapshot: time stamp of a snapshot on snapshot.debian.org that contains the file.
        path: path of the file below the archive's root.
        size: size of the file in bytes.
    """

    name: str
    version: str
    archive: str
    snapshot: str
    path: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        """The name of the file, in the form that apt requires."""
        return unquote(self.path.rpartition("/")[2])

    @property
    def urls(self) -> tuple[str, str]:
        """The addresses of the file: on the mirror, then on snapshot.debian.org."""
        mirror = ARCHIVES[self.archive][0]
        old = f"{SNAPSHOT}/{self.archive}/{self.snapshot}/{self.path}"
        return f"{mirror}/{self.path}", old


def read(path: Path) -> list[Locked]:
    """Read a `requirements.lock`.

    Raises:
        UsageError: The file is missing or is not text, or a requirement in it is not pinned with
            hashes.
    """
    return [parse(path, number, block) for number, block in blocks(_text(path))]


def _text(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"{path} is missing", code="lock-missing",
                         hint=f"run `trimaran lock {path.parent.name}`")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a {path.name}: {error}", code="lock-invalid") from error


def file_name(source: Source) -> str:
    """Return the file name in the address of `source`."""
    return unquote(urlsplit(source.url).path.rpartition("/")[2])


def read_debian(path: Path) -> list[DebianPackage]:
    """Read a `debian.lock`.

    Raises:
        UsageError: The file is missing or is not text, or a line has another form.
    """
    packages = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.fullmatch(line.strip())
        if found is None or found["archive"] not in ARCHIVES or not _is_below(found["path"]):
            raise UsageError(
                f"{path}:{number}: not 'name version archive snapshot path size sha256'",
                code="lock-invalid", hint=f"run `trimaran lock {path.parent.name}`",
            )
        name, version, archive, snapshot, below, size, checksum = line.split()
        packages.append(DebianPackage(name, version, archive, snapshot, below, int(size), checksum))
    return packages


def _is_below(path: str) -> bool:
    """Return whether the relative path `path` cannot lead out of a folder.

    The path is appended to the address of a Debian archive and to a download folder. It must not
    contain `..` or an encoded slash (`%2f`).
    """
    return ".." not in path.split("/") and re.search("%2f", path, re.IGNORECASE) is None


def debian_text(
    packages: Sequence[DebianPackage], image: str, architecture: Architecture
) -> str:
    """Return the text of a `debian.lock` that lists the `packages` of `image`."""
    lines = [
        f"# Debian packages of {image} for {architecture}, with all that they depend on.",
        f"# Written by `trimaran lock {image}`; an image has exactly these versions.",
        "# name version archive snapshot path size sha256",
    ]
    lines += [
        f"{p.name} {p.version} {p.archive} {p.snapshot} {p.path} {p.size} {p.sha256}"
        for p in sorted(packages, key=lambda p: p.name)
    ]
    return "\n".join(lines) + "\n"


def blocks(text: str) -> list[tuple[int, str]]:
    """Return the line number and the text of each requirement, with its hashes and comments."""
    blocks: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line and not line[0].isspace() and not line.startswith("#"):
            blocks.append((number, line + "\n"))
        elif blocks and line.strip():
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + line + "\n")
    return blocks


def parse(path: Path, number: int, block: str) -> Locked:
    """Return the requirement in `block`, which begins in line `number` of the lock `path`.

    Raises:
        UsageError: The requirement is not pinned with hashes.
    """
    body = " ".join(
        line.rstrip("\\").strip()
        for line in block.splitlines()
        if not line.strip().startswith("#")
    )
    hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)", body))
    try:
        requirement = Requirement(body.split(" --hash=")[0])
    except InvalidRequirement as error:
        raise UsageError(f"{path}:{number}: {error}", code="lock-invalid") from error
    pins = [s.version for s in requirement.specifier if s.operator == "=="]
    if len(pins) != 1 or not hashes:
        raise UsageError(f"{path}:{number}: {requirement.name} is not pinned with == and a hash",
                         code="lock-invalid")
    marker = str(requirement.marker) if requirement.marker else None
    return Locked(canonicalize_name(requirement.name), pins[0], marker, hashes)


def _linux(python: str, architecture: Architecture) -> dict[str, str]:
    return {
        "python_version": python, "python_full_version": f"{python}.0",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
        "os_name": "posix", "sys_platform": "linux", "platform_system": "Linux",
        "platform_machine": MACHINES[architecture], "platform_release": "", "platform_version": "",
        "implementation_version": f"{python}.0", "extra": "",
    }
