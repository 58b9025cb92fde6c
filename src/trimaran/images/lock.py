"""Write and read the locks of an image: `requirements.lock` (wheels) and `debian.lock`.

`requirements.lock` has pip's format with hashes. uv resolves it for Python 3.11 and newer on Linux,
so that the image and the host engine can install it for different versions of Python. `image.yaml`
names the address and the hash of each wheel that is not on PyPI. `excludes.txt` beside
`requirements.in` names packages that are required by others but must not be in the image. The lock
of an app image contains only packages that the lock of its framework image lacks, in versions that
agree with it.
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
from trimaran.images import debian, definition, indexes
from trimaran.images.definition import Image
from trimaran.images.parts import PYTHONS, Source
from trimaran.net.download import fetch
from trimaran.reporting import Reporter

EXCLUDES = "excludes.txt"
"""Optional file: names of packages that are never locked, even if other packages require them."""


@dataclass(frozen=True)
class Locked:
    """One requirement of a lock: pinned version, environment marker and accepted SHA-256 hashes."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]

    def applies_to(self, python: str) -> bool:
        """Return whether this requirement is installed for `python` ("3.11") on Linux x86_64."""
        return self.marker is None or Marker(self.marker).evaluate(_linux(python))


def lock(image: Image, reporter: Reporter) -> None:
    """Resolve the packages of `image` and write its locks.

    Raises:
        UsageError: `image` is an app image that has all its packages from its framework image.
        BuildError: The packages cannot be resolved, or a program for it is missing.
    """
    if definition.wheels_lock(image) is None:
        raise UsageError(
            f"{image.name} has no locks of its own", code="lock-inherited",
            hint=f"run `trimaran lock {image.framework}`, or list further packages in"
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
        UsageError: The file is missing, or a requirement in it is not pinned with hashes.
    """
    if not path.is_file():
        raise UsageError(f"{path} is missing", code="lock-missing",
                         hint=f"run `trimaran lock {path.parent.name}`")
    return [
        _parse(path, number, block)
        for number, block in _blocks(path.read_text(encoding="utf-8"))
    ]


def file_name(source: Source) -> str:
    """Return the file name in the address of `source`."""
    return unquote(urlsplit(source.url).path.rpartition("/")[2])


def _debian(image: Image, reporter: Reporter) -> dict[str, list[debian.Package]]:
    """Return the name of each Debian lock -> its packages.

    `build-debian.lock` has the packages that only the first build stage installs.
    """
    if image.base is None or image.base.suite is None:
        return {}
    suite, security = image.base.suite, image.security
    reporter.note(f"resolving Debian packages of {suite}")
    final = debian.resolve(suite, image.debian, security=security)
    if (other := _other(image)) is not None:
        _check_same(image, final, debian.read(other / "debian.lock"))
    locks = {"debian.lock": final}
    if image.build and image.build.debian:
        both = debian.resolve(suite, (*image.debian, *image.build.debian), security=security)
        locks["build-debian.lock"] = [package for package in both if package not in final]
    return locks


def _other(image: Image) -> Path | None:
    """Return the folder of the image that the variant `image` extends; None: it is no variant."""
    return image.folder.parent / image.variant.of if image.variant else None


def _check_same(
    image: Image, resolved: list[debian.Package], locked: list[debian.Package]
) -> None:
    """Raise BuildError if `resolved` has other versions than `locked`, those of the other image."""
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
        more = os.path.relpath(definition.variant_file(f"{image.variant.variant}.in"), image.folder)
        return [f"{beside}/requirements.in", more, "--constraint", f"{beside}/requirements.lock"]
    words = ["requirements.in"]  # relative, because uv writes it into the lock
    for part in definition.chain(image):
        place = os.path.relpath(part.folder, image.folder)
        if (part.folder / EXCLUDES).is_file():
            words += ["--excludes", os.path.normpath(f"{place}/{EXCLUDES}")]
        if part.name != image.name:
            words += ["--constraint", f"{place}/requirements.lock"]
    return words


def _below(image: Image) -> frozenset[str]:
    """Return the names of the packages in the lock of the framework image of `image`."""
    below = definition.chain(image)[:-1]
    return frozenset(
        locked.name for part in below for locked in read(part.folder / "requirements.lock")
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
    return header + _tidy(result.stdout, python.elsewhere, _below(image))


def _get(wheel: Source, folder: Path, sources: indexes.Sources, reporter: Reporter) -> None:
    """Download a wheel that is not on PyPI, and link it into `folder`, which uv reads."""
    name = file_name(wheel)
    kept = paths.cache("wheelhouse", "files", wheel.sha256) / name
    fetch([*sources.local(name), wheel.url], kept, sha256=wheel.sha256, size=None, offline=False,
          reporter=reporter, error=BuildError)
    (folder / name).symlink_to(kept)


def _tidy(text: str, elsewhere: tuple[Source, ...], below: frozenset[str] = frozenset()) -> str:
    """Return the lock `text` without superfluous requirements, and with the hashes of `elsewhere`.

    Args:
        text: output of uv.
        elsewhere: wheels that are not on PyPI.
        below: names of packages that the framework image has locked. They are omitted, as are
            packages that no supported version of Python installs on Linux.
    """
    kept = []
    for number, block in _blocks(text):
        locked = _parse(Path("uv's output"), number, block)
        needed = any(locked.applies_to(python) for python in PYTHONS)
        if locked.name in below or not needed:
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
    wheel_name, wheel_version, _, _ = parse_wheel_filename(file_name(wheel))
    return wheel_name == canonicalize_name(name) and str(wheel_version) == version


def _blocks(text: str) -> list[tuple[int, str]]:
    """Return the requirements of a lock: (line number, requirement with hashes and comments)."""
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
        raise UsageError(f"{path}:{number}: {error}", code="lock-invalid") from error
    pins = [s.version for s in requirement.specifier if s.operator == "=="]
    if len(pins) != 1 or not hashes:
        raise UsageError(f"{path}:{number}: {requirement.name} is not pinned with == and a hash",
                         code="lock-invalid")
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
