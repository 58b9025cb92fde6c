"""Resolve the Debian packages of an image into `debian.lock`, and read that file.

apt resolves them with a private configuration and an empty package database. The lock therefore
contains all dependencies, and depends neither on the machine nor on the packages of the base
image. Every line of the lock names a file by its SHA-256. The files come from deb.debian.org, or
from snapshot.debian.org after Debian has replaced them.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import unquote

from trimaran import process
from trimaran.errors import BuildError, UsageError
from trimaran.net.mirrors import DEBIAN, SNAPSHOT

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHIVES = {
    "debian": (f"{DEBIAN}/debian", "{suite}"),
    "debian-security": (f"{DEBIAN}/debian-security", "{suite}-security"),
}
"""Name of an archive -> its mirror, and the pattern of its suite's name."""

LINE = re.compile(r"(\S+ +){2}(?P<archive>\S+) +\S+ +(?P<path>\S+) +[0-9]{1,15} +[0-9a-f]{64}")
"""The form of a line of `debian.lock`."""

PRINTED = re.compile(r"'(?P<url>[^' ]+)' (?P<name>[^_ ]+)_(?P<version>[^_ ]+)_[^_ ]+"
                     r" (?P<size>[0-9]{1,15}) SHA256:(?P<sha256>[0-9a-f]{64})")
"""The form of the line that apt prints for a package."""


@dataclass(frozen=True)
class Package:
    """One line of `debian.lock`: a file of the Debian archive.

    Attributes:
        archive: key of `ARCHIVES`.
        snapshot: time stamp of an archive state on snapshot.debian.org that has the file.
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
        """Name of the file, in the form that apt requires."""
        return unquote(self.path.rpartition("/")[2])

    @property
    def urls(self) -> tuple[str, str]:
        """Addresses of the file: on the mirror, then on snapshot.debian.org."""
        mirror = ARCHIVES[self.archive][0]
        old = f"{SNAPSHOT}/{self.archive}/{self.snapshot}/{self.path}"
        return f"{mirror}/{self.path}", old


def read(path: Path) -> list[Package]:
    """Read a `debian.lock`.

    Raises:
        UsageError: The file is missing or is not text, or a line has another form.
    """
    if not path.is_file():
        raise UsageError(f"{path} is missing", code="lock-missing",
                         hint=f"run `trimaran lock {path.parent.name}`")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a debian.lock: {error}", code="lock-invalid") from error
    packages = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.fullmatch(line.strip())
        if found is None or found["archive"] not in ARCHIVES or not _is_below(found["path"]):
            raise UsageError(
                f"{path}:{number}: not 'name version archive snapshot path size sha256'",
                code="lock-invalid", hint=f"run `trimaran lock {path.parent.name}`",
            )
        name, version, archive, snapshot, below, size, checksum = line.split()
        packages.append(Package(name, version, archive, snapshot, below, int(size), checksum))
    return packages


def _is_below(path: str) -> bool:
    """Return whether `path` stays below the root of the archive and below a download folder."""
    return ".." not in path.split("/") and re.search("%2f", path, re.IGNORECASE) is None


def write(packages: Sequence[Package], image: str) -> str:
    """Return the text of a `debian.lock` with `packages`, those of `image`."""
    lines = [
        f"# Debian packages of {image}, with all that they depend on.",
        f"# Written by `trimaran lock {image}`; an image has exactly these versions.",
        "# name version archive snapshot path size sha256",
    ]
    lines += [
        f"{p.name} {p.version} {p.archive} {p.snapshot} {p.path} {p.size} {p.sha256}"
        for p in sorted(packages, key=lambda p: p.name)
    ]
    return "\n".join(lines) + "\n"


def resolve(suite: str, wanted: Sequence[str], *, security: bool) -> list[Package]:
    """Return the packages `wanted` and all their dependencies, in their newest version in `suite`.

    Args:
        suite: a Debian release (`bookworm`).
        wanted: package names.
        security: include security updates. A mirror deletes an update when the next one appears,
            and only snapshot.debian.org keeps it; a point release stays on mirrors for years.

    Raises:
        BuildError: apt or its archive keys are missing, the network fails, or a package does not
            exist.
    """
    if shutil.which("apt-get") is None or not KEYRING.is_file():
        raise BuildError(
            "resolving Debian packages needs apt and debian-archive-keyring",
            code="program-missing",
            hint="run `trimaran lock` on a Debian-family machine; building needs neither",
        )
    archives = list(ARCHIVES) if security else ["debian"]
    with tempfile.TemporaryDirectory(prefix="trimaran-apt-") as folder:
        work = Path(folder)
        config = _private_apt(work, suite, archives)
        env = {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C"}
        process.run(["apt-get", "update", "--quiet"], env=env, check=BuildError)
        found = process.run(
            ["apt-get", "install", "--quiet=2", "--print-uris", *wanted], env=env, check=BuildError
        )
        stamps = _snapshots(work / "state/lists", archives)
    return [_package(line, stamps) for line in found.stdout.splitlines() if line.startswith("'")]


def _private_apt(work: Path, suite: str, archives: Sequence[str]) -> Path:
    """Write an apt configuration that shares only the archive keys with the host's."""
    for folder in ("state/lists/partial", "cache/archives/partial", "etc/apt.conf.d",
                   "etc/preferences.d"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    (work / "etc/sources.list").write_text("".join(
        f"deb [signed-by={KEYRING}] {mirror} {name.format(suite=suite)} main\n"
        for mirror, name in (ARCHIVES[archive] for archive in archives)
    ), encoding="utf-8")
    settings = {
        "Dir": f"{work}/",
        "Dir::State": "state",
        "Dir::State::status": f"{work}/status",
        "Dir::Cache": "cache",
        "Dir::Etc": "etc",
        "Dir::Etc::sourceparts": "-",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",  # empty: only root can change to the user _apt
        "Acquire::Languages": "none",
        "Acquire::ForceHash": "SHA256",  # without it, --print-uris shows MD5
        # An air-gapped site may have an old copy of the mirror; signatures are verified.
        "Acquire::Check-Valid-Until": "false",
        "Debug::NoLocking": "true",
    }
    config = work / "apt.conf"
    lines = [f'{key} "{value}";\n' for key, value in settings.items()]
    config.write_text("".join(lines), encoding="utf-8")
    return config


def _snapshots(lists: Path, archives: Sequence[str]) -> dict[str, str]:
    """Return archive -> time stamp at which snapshot.debian.org has the files that apt listed.

    The snapshot service imports an archive some hours after the date of its release file.
    Therefore one day is added.
    """
    stamps = {}
    for archive in archives:
        host = ARCHIVES[archive][0].partition("://")[2].replace("/", "_")
        for path in lists.glob(f"{host}_dists_*InRelease"):
            dated = re.search(r"^Date: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            if dated:
                moment = parsedate_to_datetime(dated.group(1)).astimezone(timezone.utc)
                stamps[archive] = (moment + timedelta(days=1)).strftime("%Y%m%dT%H%M%SZ")
    missing = set(archives) - set(stamps)
    if missing:
        raise BuildError(f"apt downloaded no release file of {', '.join(missing)}",
                         code="apt-unexpected")
    return stamps


def _package(line: str, stamps: dict[str, str]) -> Package:
    """Return the package of one line of apt, `'URL' FILE SIZE SHA256:HASH`."""
    found = PRINTED.fullmatch(line)
    url = found["url"] if found else line
    for archive, (mirror, _) in ARCHIVES.items():
        if found and url.startswith(f"{mirror}/"):
            return Package(
                name=unquote(found["name"]), version=unquote(found["version"]), archive=archive,
                snapshot=stamps[archive], path=url.removeprefix(f"{mirror}/"),
                size=int(found["size"]), sha256=found["sha256"],
            )
    raise BuildError(f"apt names a file outside the known archives: {url}",
                     code="apt-unexpected")
