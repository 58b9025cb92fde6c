"""Print the inventory of an image as JSON; the Python of the image runs this module.

`image_contents` passes the text of this module to the Python interpreter of the image. The module
may use only the standard library of Python 3.10, and is not part of the image.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

Row = dict[str, Any]

# These paths are empty in an image, or the engine mounts them, so they are not its content.
SKIPPED = frozenset({
    "/dev", "/mnt", "/proc", "/run", "/sys", "/tmp", "/var/tmp",  # noqa: S108 - names, not used
    "/etc/group", "/etc/hostname", "/etc/hosts", "/etc/localtime", "/etc/mtab", "/etc/passwd",
    "/etc/resolv.conf",
    "/.exec", "/.run", "/.shell", "/.singularity.d", "/.test", "/environment", "/singularity",
})
BLOCK = 1 << 20
MACHINE_READABLE = re.compile(r"^Format:.*copyright-format", re.MULTILINE)
LICENCE_FIELD = re.compile(r"^License:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
COMMON_LICENCE = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9][A-Za-z0-9.+-]*[A-Za-z0-9+])")


def mounted() -> frozenset[str]:
    """Return the paths on which the engine has mounted something."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return frozenset(line.split()[4] for line in lines) - {"/"}


def files(root: str, skipped: frozenset[str]) -> dict[str, Row]:
    """Return all paths below `root` with type, mode, size, and SHA-256 or link target."""
    found: dict[str, Row] = {}
    content: list[str] = []
    for path, facts in walk(root, skipped):
        row: Row = {"type": "other", "mode": stat.S_IMODE(facts.st_mode), "size": 0}
        if stat.S_ISDIR(facts.st_mode):
            row["type"] = "directory"
        elif stat.S_ISLNK(facts.st_mode):
            row |= {"type": "link", "target": str(Path(path).readlink())}
        elif stat.S_ISREG(facts.st_mode):
            row |= {"type": "file", "size": facts.st_size}
            content.append(path)
        found[path] = row
    # Hashing and decompression release Python's global lock, so threads make this faster.
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as pool:
        for path, digest in zip(content, pool.map(sha256, content), strict=True):
            found[path]["sha256"] = digest
    return found


def walk(folder: str, skipped: frozenset[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each path below `folder` with its `stat` result, except the paths in `skipped`.

    Links are not followed.
    """
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.path in skipped:
                continue
            yield entry.path, entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False) and os.access(entry.path, os.R_OK | os.X_OK):
                yield from walk(entry.path, skipped)


def sha256(path: str) -> str | None:
    """Return the SHA-256 of a file; None if this user may not read it."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as handle:  # noqa: PTH123 - half the time for 10^5 files
            while block := handle.read(BLOCK):
                digest.update(block)
    except PermissionError:
        return None
    return digest.hexdigest()


def debian(status: Path, documents: Path) -> list[Row]:
    """Return the installed Debian packages that the `status` file of dpkg lists.

    The folder `documents` contains their copyright files.
    """
    if not status.is_file():
        return []
    packages = []
    for paragraph in status.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^(\w[\w-]*): (.*)$", paragraph, re.MULTILINE))
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name = fields["Package"]
        packages.append({
            "name": name, "version": fields["Version"], "architecture": fields["Architecture"],
            "source": (fields.get("Source") or name).split(" ")[0],
            **debian_licences(documents / name / "copyright"),
        })
    return packages


def debian_licences(path: Path) -> dict[str, list[str]]:
    """Return the licences in a Debian copyright file.

    A machine-readable file declares them in `License:` fields (`licences`). Any other file is plain
    text that mentions files of /usr/share/common-licenses (`mentioned`): such a licence may apply
    to the package, to a file in its sources, or to nothing that is installed.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    fields = LICENCE_FIELD.findall(text) if MACHINE_READABLE.search(text) else []
    mentioned = [] if fields else COMMON_LICENCE.findall(text)
    return {"licences": sorted(set(fields)), "mentioned": sorted(set(mentioned))}


def python() -> list[Row]:
    """Return the Python packages that can be imported in the image."""
    packages = []
    for found in metadata.distributions():
        about: Any = found.metadata  # its type lacks methods before Python 3.12
        packages.append({
            "name": about["Name"], "version": found.version,
            "licences": python_licences(
                about["License-Expression"], about.get_all("Classifier") or [], about["License"]
            ),
            "installer": (found.read_text("INSTALLER") or "").strip(),
        })
    return sorted(packages, key=lambda package: str(package["name"]).lower())


def python_licences(expression: str | None, classifiers: list[str], text: str | None) -> list[str]:
    """Return the licences that the metadata of a Python package state.

    These are the licence expression, or else the classifiers, or else a text of one short line.
    """
    if expression:
        return [expression]
    named = sorted({line.rpartition(" :: ")[2] for line in classifiers
                    if line.startswith("License :: ") and line.count(" :: ") > 1})
    lines = (text or "").strip().splitlines()
    return named or (lines if len(lines) == 1 and len(lines[0]) < 100 else [])


def release(path: Path) -> dict[str, str]:
    """Return the fields of an os-release file."""
    if not path.is_file():
        return {}
    pairs = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines())
    return {key: value.strip("\"'") for key, equals, value in pairs if equals}


def main() -> None:
    """Print the inventory of the file system in which this program runs."""
    hidden = mounted()
    json.dump({
        "release": release(Path("/etc/os-release")),
        "python_version": sys.version.split()[0],
        "environment": dict(os.environ),
        "debian": debian(Path("/var/lib/dpkg/status"), Path("/usr/share/doc")),
        "python": python(),
        "files": files("/", SKIPPED | hidden),
        "hidden": sorted(path for path in hidden if not path.startswith(("/dev", "/proc", "/sys"))),
    }, sys.stdout)


if __name__ == "__main__":
    main()
