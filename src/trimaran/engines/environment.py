"""Make virtual environments of verified wheels, and check them file by file.

The package `installer` unpacks exactly the wheels of the lock; pip is not used, and no dependencies
are resolved. The file `.complete`, which is written last, lists the hashes of all other files.
"""

from __future__ import annotations

import base64
import compileall
import csv
import json
import os
import py_compile
import sysconfig
import venv
import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.records import RecordEntry
from installer.sources import WheelFile
from installer.utils import Scheme

from trimaran import pool
from trimaran.errors import BuildError
from trimaran.files import sha256, write_atomic
from trimaran.parsing import parse_json
from trimaran.reporting import Advance, Reporter

COMPLETE = ".complete"
"""The list of all files of the environment: path -> hash of a file, or target of a link."""


@dataclass(frozen=True)
class _Task:
    """One wheel to unpack into the environment `part`, which will be renamed to `place`."""

    wheel: Path
    part: Path
    place: Path


def make(wheels: Sequence[Path], part: Path, place: Path, reporter: Reporter) -> None:
    """Make an environment with the given wheels in `part`, a folder to be renamed to `place`.

    Raises:
        BuildError: a wheel cannot be unpacked, or a file differs from the hash in its wheel.
    """
    _Bare(symlinks=True).create(part)
    total = sum(map(_work, wheels))
    tasks = [_Task(wheel, part, place) for wheel in wheels]
    tasks.sort(key=lambda task: -task.wheel.stat().st_size)  # begin with the largest wheel
    with reporter.bar(f"installing {len(wheels)} packages", total, unit="files") as advance:
        for _ in pool.run(_unpack, tasks, pool.cores(), advance):
            pass
    found = _contents(part, _paths(part), reporter)
    if faults := _unlike_records(part, found):
        raise BuildError(
            "\n".join([f"{place}: files differ from the hashes in their packages:", *faults]),
            code="environment-damaged", hint="build it again",
        )
    write_atomic(part / COMPLETE, json.dumps(found, indent=0) + "\n")


def damage(place: Path, reporter: Reporter, *, thorough: bool = True) -> str | None:
    """Return the first file of the environment `place` that has changed, or None.

    Args:
        place: the environment.
        reporter: shows progress.
        thorough: hash even the files whose `ctime` is older than the environment (see `store`).
    """
    mark = place / COMPLETE
    try:
        made = mark.stat().st_mtime_ns
        wanted = parse_json(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{mark} is damaged: {error}"
    if not isinstance(wanted, dict) or not wanted:
        return f"{mark} is damaged: it lists no files"
    names = [name for name in wanted if thorough or _is_touched(place / name, made)]
    found = _contents(place, names, reporter)
    wrong = [name for name in names if found[name] != wanted[name]]
    if not wrong:
        return None
    first = wrong[0]
    more = f" (and {len(wrong) - 1} files more)" if len(wrong) > 1 else ""
    return f"{place / first}: expected {wanted[first]}, found {found[first]}{more}"


def _is_touched(path: Path, since: int) -> bool:
    try:
        return path.lstat().st_ctime_ns > since
    except OSError:
        return True


class _Bare(venv.EnvBuilder):
    """Builder of a virtual environment whose files do not contain the environment's own path."""

    def create_configuration(self, context: SimpleNamespace) -> None:
        """Write `pyvenv.cfg` without its line `command`."""
        super().create_configuration(context)
        file = Path(context.cfg_path)
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("command ")]
        file.write_text("".join(kept), encoding="utf-8")

    def setup_scripts(self, context: SimpleNamespace) -> None:
        """Write no activation scripts."""


class _Counting(SchemeDictionaryDestination):
    """Unpacks a wheel, and reports each file."""

    advance: Advance

    def write_to_fs(
        self, scheme: Scheme, path: str, stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        """Write one file."""
        self.advance(1)
        # Packages that share a folder may be unpacked at the same time.
        Path(self.scheme_dict[scheme], path).parent.mkdir(parents=True, exist_ok=True)
        return super().write_to_fs(scheme, path, stream, is_executable)


def _unpack(task: _Task, advance: Advance) -> None:
    """Unpack one wheel and compile its modules, in a separate process."""
    places = sysconfig.get_paths(
        "posix_prefix", {"base": str(task.part), "platbase": str(task.part)}
    )
    places["headers"] = str(task.part / "include")
    to = _Counting(
        places, interpreter=str(task.place / "bin/python"), script_kind="posix",
        overwrite_existing=True,  # some packages share an empty file
    )
    to.advance = advance
    try:
        with WheelFile.open(task.wheel) as source:
            install(source, to, additional_metadata={"INSTALLER": b"trimaran\n"})
    except (ValueError, zipfile.BadZipFile) as error:
        raise BuildError(f"{task.wheel.name} cannot be unpacked: {error}", code="wheel-damaged",
                         hint="remove the file, so that it is downloaded again") from error
    site = Path(places["purelib"])
    for name in _modules(task.wheel):
        # Without time stamps, Python never compiles again. Modules for newer Pythons fail.
        compileall.compile_file(
            site / name, stripdir=str(task.part), prependdir=str(task.place), quiet=2,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        advance(1)


def _modules(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if name.endswith(".py")]


def _work(wheel: Path) -> int:
    """Return approximately how many steps `_unpack` reports."""
    with zipfile.ZipFile(wheel) as archive:
        return len(archive.namelist()) + len(_modules(wheel))


def _paths(place: Path) -> list[str]:
    """Return all files and links below `place`, as relative paths, sorted."""
    found = []
    for folder, folders, files in os.walk(place):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        found += [str(Path(folder, name).relative_to(place)) for name in (*files, *links)]
    return sorted(found)


def _contents(place: Path, names: Iterable[str], reporter: Reporter) -> dict[str, str]:
    """Return path -> hash of the file, target of the link, or error, for the paths `names`."""
    names = list(names)
    with (
        reporter.bar(f"verifying {place.name}", len(names), unit="files") as advance,
        ThreadPoolExecutor(pool.cores()) as threads,
    ):
        found = {}
        for name, content in zip(
            names, threads.map(partial(_content, place), names), strict=True
        ):
            found[name] = content
            advance(1)
    return found


def _content(place: Path, name: str) -> str:
    path = place / name
    try:
        if path.is_symlink():
            return f"link to {path.readlink()}"
        return f"SHA-256 {sha256(path)}"
    except OSError as error:
        return str(error.strerror)


def _unlike_records(part: Path, found: dict[str, str]) -> list[str]:
    """Return the files whose hash differs from every RECORD that lists them."""
    site = Path(sysconfig.get_path("purelib", "posix_prefix", {"base": str(part)}))
    listed: dict[str, set[str]] = {}
    for record in site.glob("*.dist-info/RECORD"):
        with record.open(encoding="utf-8", newline="") as file:
            for name, hash_, _ in csv.reader(file):
                if hash_.startswith("sha256="):
                    path = os.path.relpath(site / name, part)
                    digest = base64.urlsafe_b64decode(hash_.removeprefix("sha256=") + "==").hex()
                    listed.setdefault(path, set()).add(f"SHA-256 {digest}")
    return [
        f"  {path}: {found.get(path, 'missing')}"
        for path, right in listed.items() if found.get(path) not in right
    ]
