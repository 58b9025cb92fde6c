"""Locks of an image: `requirements.lock` (wheels, with hashes) and `debian.lock`.

`requirements.lock` is pip's own format with hashes, resolved by uv for Python 3.11
and newer on Linux: the image installs it for its interpreter, the host engine for
its own. Wheels that PyPI does not have are named by official address and hash in
`image.yaml`; the lock takes their hashes from there. What a package requires, but must
not be in the image, is named in `excludes.txt` beside `requirements.in`. The lock of an
app image has what the lock of its framework image lacks, and contradicts nothing there.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from trimaran import paths, process
from trimaran.errors import BuildError, UsageError
from trimaran.files import write_atomic
from trimaran.images import debian, definition, indexes, variants
from trimaran.images.definition import Image
from trimaran.images.parts import PYTHONS, Source
from trimaran.net.download import fetch
from trimaran.reporting import Reporter

EXCLUDES = "excludes.txt"
"""Optional file: names of packages that stay out of the lock, whatever requires them."""


@dataclass(frozen=True)
class Locked:
    """One requirement of a lock: a pinned version, when it applies, and the hashes accepted."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]

    def applies_to(self, python: str) -> bool:
        """Whether this requirement is installed for `python` ("3.11") on Linux x86_64."""
        return self.marker is None or Marker(self.marker).evaluate(_linux(python))


def lock(image: Image, reporter: Reporter) -> None:
    """Resolve the packages of an image anew and write its locks.

    Raises:
        UsageError: an app image that takes all its packages from its framework image.
        BuildError: something cannot be resolved, or a tool for it is missing.
    """
    if definition.wheels_lock(image) is None:
        raise UsageError(
            f"{image.name} has no locks of its own",
            hint=f"`trimaran lock {image.framework}`, or name what that image lacks in"
            f" {image.folder / 'requirements.in'}",
        )
    paths.refuse_installed(image.folder)
    debs = _debian(image, reporter)
    reporter.note(f"resolving wheels for Python {', '.join(PYTHONS)}")
    requirements = _resolve(image, reporter)
    for name, packages in debs.items():
        write_atomic(image.folder / name, debian.write(packages, image.name))
        reporter.note(f"{name}: {len(packages)} packages")
    write_atomic(image.folder / "requirements.lock", requirements)
    reporter.note(f"requirements.lock: the wheels of {image.name}")


def read(path: Path) -> list[Locked]:
    """Read a `requirements.lock`.

    Raises:
        UsageError: the file is missing, or a requirement in it is not pinned with hashes.
    """
    if not path.is_file():
        raise UsageError(f"{path} is missing", hint=f"run `trimaran lock {path.parent.name}`")
    return [
        _parse(path, number, block)
        for number, block in _blocks(path.read_text(encoding="utf-8"))
    ]


def file_name(source: Source) -> str:
    """Return the name of a file given by address."""
    return unquote(urlsplit(source.url).path.rpartition("/")[2])


def _debian(image: Image, reporter: Reporter) -> dict[str, list[debian.Package]]:
    """Return the packages of each Debian lock; the first stage's has what that one adds."""
    if image.base is None or image.base.suite is None:
        return {}
    suite, security = image.base.suite, image.security
    reporter.note(f"resolving Debian packages of {suite}")
    final = debian.resolve(suite, image.debian, security=security)
    if (other := _other(image)) is not None:
        _check_same(image, final, debian.read(other / "debian.lock"))
    found = {"debian.lock": final}
    if image.build and image.build.debian:
        both = debian.resolve(suite, (*image.debian, *image.build.debian), security=security)
        found["build-debian.lock"] = [package for package in both if package not in final]
    return found


def _other(image: Image) -> Path | None:
    """Return the folder of the image that `image` is a variant of."""
    return image.folder.parent / image.variant.of if image.variant else None


def _check_same(image: Image, found: list[debian.Package], locked: list[debian.Package]) -> None:
    """Refuse to lock a variant whose packages are newer than those of the other image."""
    versions = {package.name: package.version for package in found}
    newer = [p.name for p in locked if versions.get(p.name) != p.version]
    if newer and image.variant:
        raise BuildError(
            f"{image.variant.of} has other versions of {', '.join(newer)} than Debian has now",
            hint=f"run `trimaran lock {image.variant.of}` first, then this again",
        )


def _wanted(image: Image) -> list[str]:
    """Return uv's arguments that say which wheels are asked for, as paths from the folder."""
    other = _other(image)
    if other is not None and image.variant is not None:
        beside = f"../{other.name}"
        more = os.path.relpath(variants.file_of(f"{image.variant.variant}.in"), image.folder)
        return [f"{beside}/requirements.in", more, "--constraint", f"{beside}/requirements.lock"]
    words = ["requirements.in"]  # by relative name: the lock repeats it
    for part in definition.chain(image):
        place = os.path.relpath(part.folder, image.folder)
        if (part.folder / EXCLUDES).is_file():
            words += ["--excludes", os.path.normpath(f"{place}/{EXCLUDES}")]
        if part.name != image.name:
            words += ["--constraint", f"{place}/requirements.lock"]
    return words


def _below(image: Image) -> frozenset[str]:
    """Return the names of the packages that the image below has locked."""
    below = definition.chain(image)[:-1]
    return frozenset(one.name for part in below for one in read(part.folder / "requirements.lock"))


def _resolve(image: Image, reporter: Reporter) -> str:
    """Return the text of the new requirements.lock."""
    python = definition.interpreter(image)
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise BuildError("uv not found", hint="run `make setup`: uv is a development tool")
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
                # uv brings certificates of its own, and takes the system's when it is told to.
                env={"UV_SYSTEM_CERTS": "1", **os.environ}, cwd=image.folder, check=BuildError,
            )
    header = (
        f"# Wheels of {image.name}: written by `trimaran lock {image.name}` from requirements.in.\n"
        "# pip refuses any file whose hash is not here.\n"
    )
    return header + _tidy(result.stdout, python.elsewhere, _below(image))


def _get(wheel: Source, folder: Path, sources: indexes.Sources, reporter: Reporter) -> None:
    """Put a wheel from elsewhere where uv can read its requirements."""
    name = file_name(wheel)
    kept = paths.cache("wheelhouse", "files", wheel.sha256) / name
    fetch([*sources.local(name), wheel.url], kept, sha256=wheel.sha256, size=None, offline=False,
          reporter=reporter, error=BuildError)
    (folder / name).symlink_to(kept)


def _tidy(text: str, elsewhere: tuple[Source, ...], below: frozenset[str] = frozenset()) -> str:
    """Drop what is `below` already, and what no supported Python on Linux installs.

    Hashes of wheels from elsewhere are added.
    """
    kept = []
    for number, block in _blocks(text):
        locked = _parse(Path("uv's output"), number, block)
        here = any(locked.applies_to(python) for python in PYTHONS)
        if locked.name in below or not here:
            continue
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
    found, number, _, _ = parse_wheel_filename(file_name(wheel))
    return found == canonicalize_name(name) and str(number) == version


def _blocks(text: str) -> list[tuple[int, str]]:
    """Split a lock into its requirements: (line number, requirement with hashes and comments)."""
    blocks: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line and not line[0].isspace() and not line.startswith("#"):
            blocks.append((number, line + "\n"))
        elif blocks and line.strip():
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + line + "\n")
    return blocks


def _parse(path: Path, number: int, block: str) -> Locked:
    body = " ".join(
        line.rstrip("\\").strip()
        for line in block.splitlines()
        if not line.strip().startswith("#")
    )
    hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)", body))
    try:
        requirement = Requirement(body.split(" --hash=")[0])
    except InvalidRequirement as error:
        raise UsageError(f"{path}:{number}: {error}") from error
    pins = [s.version for s in requirement.specifier if s.operator == "=="]
    if len(pins) != 1 or not hashes:
        raise UsageError(f"{path}:{number}: {requirement.name} is not pinned with ==, with hashes")
    marker = str(requirement.marker) if requirement.marker else None
    return Locked(canonicalize_name(requirement.name), pins[0], marker, hashes)


def _linux(python: str) -> dict[str, str]:
    return {
        "python_version": python, "python_full_version": f"{python}.0",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
        "os_name": "posix", "sys_platform": "linux", "platform_system": "Linux",
        "platform_machine": "x86_64", "platform_release": "", "platform_version": "",
        "implementation_version": f"{python}.0", "extra": "",
    }
