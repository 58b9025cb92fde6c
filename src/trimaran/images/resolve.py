"""Resolve the packages of an image, and write its locks.

uv resolves the wheels for Python 3.11 and newer on Linux, so that the image and the host engine can
install them for different versions of Python. `image.yaml` names the address and the hash of each
wheel that is not on PyPI. `excludes.txt` next to `requirements.in` names packages that must not be
in the image although other packages require them; `overrides.txt` states for which architecture,
and in which version, a package is in the image, whatever other packages require. The lock of an app
image contains only packages that the lock of its framework image lacks, in versions that agree with
that lock.

apt resolves the Debian packages with a private configuration and an empty package database. The
lock therefore contains all dependencies, and depends neither on the machine nor on the packages of
the base image.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import unquote

from packaging.utils import canonicalize_name, parse_wheel_filename

from trimaran import paths, process
from trimaran.architectures import Architecture
from trimaran.errors import BuildError, UsageError
from trimaran.files import write_atomic
from trimaran.images import definition, indexes, lock, wheel_choice
from trimaran.images.definition import Image
from trimaran.images.lock import ARCHIVES, KEYRING, DebianPackage
from trimaran.images.parts import PYTHONS, Source
from trimaran.images.variants import variant_file
from trimaran.net.download import fetch
from trimaran.reporting import Reporter

EXCLUDES = "excludes.txt"
"""Optional file: names of packages that are never locked, even if other packages require them."""

OVERRIDES = "overrides.txt"
"""Optional file of requirements with markers.

Each replaces what other packages require of the package that it names. Unlike `EXCLUDES`, it can
exclude a package from the images of one architecture.
"""

PRINTED = re.compile(r"'(?P<url>[^' ]+)' (?P<name>[^_ ]+)_(?P<version>[^_ ]+)_[^_ ]+"
                     r" (?P<size>[0-9]{1,15}) SHA256:(?P<sha256>[0-9a-f]{64})")
"""Pattern of the line that apt prints for a package: URL, file name, size and SHA-256."""


def write_locks(image: Image, reporter: Reporter) -> None:
    """Resolve the packages of `image` and write its locks.

    Raises:
        UsageError: `image` is an app image that has all its packages from its framework image.
        BuildError: The packages cannot be resolved, a package has no wheel for an architecture of
            the image, or a required program is missing. No lock is written.
    """
    if definition.wheels_lock(image) is None:
        raise UsageError(
            f"{image.name} has no locks of its own", code="lock-inherited",
            hint=f"run `trimaran lock {image.framework}`, or list further packages in"
            f" {image.folder / 'requirements.in'}",
        )
    paths.refuse_installed(image.folder)
    debs: dict[str, str] = {}
    for architecture in definition.chain(image)[0].architectures:
        debs |= _debian(definition.on(image, architecture), reporter)
    reporter.note(f"resolving wheels for Python {', '.join(PYTHONS)}")
    requirements = _resolve(image, reporter)
    with reporter.bar("looking for a wheel of each package for each architecture", None):
        wheel_choice.require_all(image, _entries(requirements))
    for name, text in debs.items():
        write_atomic(image.folder / name, text)
        reporter.note(f"{name}: {text.count(' pool/')} packages")
    write_atomic(image.folder / "requirements.lock", requirements)
    reporter.note(f"requirements.lock: the wheels of {image.name}")


def _debian(image: Image, reporter: Reporter) -> dict[str, str]:
    """Return the text of each Debian lock for the image's architecture, by the name of the lock.

    `build-debian.lock` has the packages that only the first build stage installs.
    """
    if image.base is None or image.base.suite is None:
        return {}
    suite, security, processor = image.base.suite, image.security, image.architecture
    names = [definition.lock_name(image, name) for name in definition.DEBIAN_LOCKS]
    reporter.note(f"resolving Debian packages of {suite} for {processor}")
    final = debian(suite, image.debian, processor, security=security)
    if (other := _other(image)) is not None:
        _check_same(image, final, lock.read_debian(other / names[0]))
    locks = [final]
    if image.build and image.build.debian:
        both = debian(suite, (*image.debian, *image.build.debian), processor, security=security)
        locks.append([package for package in both if package not in final])
    return {
        name: lock.debian_text(packages, image.name, processor)
        for name, packages in zip(names, locks, strict=False)
    }


def _other(image: Image) -> Path | None:
    """Return the folder of the image that `image` extends, or None if `image` is not a variant."""
    return image.folder.parent / image.variant.of if image.variant else None


def _check_same(
    image: Image, resolved: list[lock.DebianPackage], locked: list[lock.DebianPackage]
) -> None:
    """Raise BuildError unless `resolved` has every package of `locked` in the same version.

    `locked` is the lock of the image that the variant `image` extends.
    """
    versions = {package.name: package.version for package in resolved}
    newer = [p.name for p in locked if versions.get(p.name) != p.version]
    if newer and image.variant:
        raise BuildError(
            f"the lock of {image.variant.of} has other versions of {', '.join(newer)} than Debian"
            " has now", code="lock-outdated",
            hint=f"run `trimaran lock {image.variant.of}`, then repeat this command",
        )


def _wanted(image: Image) -> list[str]:
    """Return uv's arguments for the required wheels; paths are relative to the image's folder."""
    other = _other(image)
    if other is not None and image.variant is not None:
        beside = f"../{other.name}"
        more = os.path.relpath(variant_file(f"{image.variant.variant}.in"), image.folder)
        return [f"{beside}/requirements.in", more, "--constraint", f"{beside}/requirements.lock"]
    words = ["requirements.in"]  # relative, because uv writes it into the lock
    for part in definition.chain(image):
        place = os.path.relpath(part.folder, image.folder)
        for option, name in (("--excludes", EXCLUDES), ("--overrides", OVERRIDES)):
            if (part.folder / name).is_file():
                words += [option, os.path.normpath(f"{place}/{name}")]
        if part.name != image.name:
            words += ["--constraint", f"{place}/requirements.lock"]
    return words


def _below(image: Image) -> frozenset[str]:
    """Return the names of the packages in the lock of the framework image of `image`."""
    below = definition.chain(image)[:-1]
    return frozenset(
        locked.name for part in below for locked in lock.read(part.folder / "requirements.lock")
    )


def _resolve(image: Image, reporter: Reporter) -> str:
    """Return the text of the new requirements.lock."""
    python = definition.interpreter(image)
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise BuildError("the program uv is not installed", code="program-missing",
                         hint="run `make setup`: uv is a development tool")
    sources = indexes.configured()
    with tempfile.TemporaryDirectory(prefix="trimaran-lock-") as folder:
        for wheel in python.elsewhere:
            if f"-cp{python.version.replace('.', '')}-" in wheel.url:
                _get(wheel, Path(folder), sources, reporter)
        with reporter.bar(f"resolving the wheels of {image.name}", None):
            result = process.run(
                [
                    uv, "pip", "compile", "--no-config", "--universal", "--generate-hashes",
                    "--python-version", python.version, "--no-header",
                    "--no-emit-index-url", "--default-index", sources.indexes[0],
                    "--find-links", folder, "--quiet",
                    *_wanted(image),
                ],
                # Without this variable, uv uses its own certificates instead of the system's.
                env={"UV_SYSTEM_CERTS": "1", **os.environ}, cwd=image.folder, check=BuildError,
            )
    header = (
        f"# Wheels of {image.name}: written by `trimaran lock {image.name}` from requirements.in.\n"
        "# pip refuses any file whose hash is not here.\n"
    )
    supported = definition.chain(image)[0].architectures
    return header + _tidy(result.stdout, python.elsewhere, supported, _below(image))


def _entries(text: str) -> list[lock.Locked]:
    """Return the requirements in `text`, the output of uv or a lock that is made from it."""
    return [lock.parse(Path("uv's output"), *each) for each in lock.blocks(text)]


def _get(wheel: Source, folder: Path, sources: indexes.Sources, reporter: Reporter) -> None:
    """Download a wheel that is not on PyPI, and link it into `folder`, which uv reads."""
    name = lock.file_name(wheel)
    kept = paths.cache("wheelhouse", "files", wheel.sha256) / name
    fetch([*sources.local(name), wheel.url], kept, sha256=wheel.sha256, size=None, offline=False,
          reporter=reporter, error=BuildError)
    (folder / name).symlink_to(kept)


def _tidy(
    text: str, elsewhere: tuple[Source, ...], supported: Sequence[Architecture],
    below: frozenset[str] = frozenset(),
) -> str:
    """Return the requirements of a lock from `text`, the output of uv.

    `elsewhere` are the wheels that are not on PyPI; their requirements get only the hashes of these
    wheels. Packages in `below`, which the framework image has locked, are omitted, as are packages
    that are needed for no supported version of Python and architecture on Linux. A package that is
    needed for all of these combinations loses its marker.
    """
    kept = []
    for (_, block), locked in zip(lock.blocks(text), _entries(text), strict=True):
        applies = [
            locked.applies_to(python, architecture)
            for python, architecture in itertools.product(PYTHONS, supported)
        ]
        if locked.name in below or not any(applies):
            continue
        if all(applies):
            block = re.sub(r" ;[^\\\n]*(?= \\)", "", block, count=1)
        hashes = sorted(
            wheel.sha256 for wheel in elsewhere if _same(wheel, locked.name, locked.version)
        )
        if hashes:
            comments = [line for line in block.splitlines() if line.strip().startswith("#")]
            lines = [block.split(" \\")[0], *(f"    --hash=sha256:{h}" for h in hashes)]
            block = " \\\n".join(lines) + "\n" + "\n".join(comments)
        kept.append(block.rstrip("\n"))
    return "\n".join(kept) + "\n"


def _same(wheel: Source, name: str, version: str) -> bool:
    wheel_name, wheel_version, _, _ = parse_wheel_filename(lock.file_name(wheel))
    return wheel_name == canonicalize_name(name) and str(wheel_version) == version


def debian(
    suite: str, wanted: Sequence[str], architecture: Architecture, *, security: bool
) -> list[DebianPackage]:
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
        config = _private_apt(work, suite, archives, architecture)
        env = {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C"}
        process.run(["apt-get", "update", "--quiet"], env=env, check=BuildError)
        found = process.run(
            ["apt-get", "install", "--quiet=2", "--print-uris", *wanted], env=env, check=BuildError
        )
        stamps = _snapshots(work / "state/lists", archives)
    return [_package(line, stamps) for line in found.stdout.splitlines() if line.startswith("'")]


def _private_apt(
    work: Path, suite: str, archives: Sequence[str], architecture: Architecture
) -> Path:
    """Write an apt configuration that shares only the archive keys with the host."""
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
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
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
    """Return for each archive a time at which snapshot.debian.org has the files that apt listed.

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
                         code="apt-unexpected",
                         hint="check the network of this machine, then repeat the command")
    return stamps


def _package(line: str, stamps: dict[str, str]) -> DebianPackage:
    """Return the package of one line of apt, `'URL' FILE SIZE SHA256:HASH`."""
    found = PRINTED.fullmatch(line)
    url = found["url"] if found else line
    for archive, (mirror, _) in ARCHIVES.items():
        if found and url.startswith(f"{mirror}/"):
            return DebianPackage(
                name=unquote(found["name"]), version=unquote(found["version"]), archive=archive,
                snapshot=stamps[archive], path=url.removeprefix(f"{mirror}/"),
                size=int(found["size"]), sha256=found["sha256"],
            )
    known = " and ".join(mirror for mirror, _ in ARCHIVES.values())
    raise BuildError(f"apt would download from an unknown archive: {url}", code="apt-unexpected",
                     hint=f"the lock can contain packages of {known} only")
