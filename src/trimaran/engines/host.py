"""The host engine: a virtual environment with the wheels of an image's lock, without a container.

It is for machines without a container engine, and for development. A run uses libraries of
the host, so its results are not evidence.

The package `installer` unpacks exactly the wheels of the lock; pip is not used, and no dependencies
are resolved. The file `.complete`, which is written last, lists the hashes of all other files.
"""

from __future__ import annotations

import base64
import compileall
import csv
import hashlib
import json
import os
import py_compile
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
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

from trimaran import locks, paths, pool, process
from trimaran.architectures import MACHINES, native
from trimaran.engines import BuiltImage, Condition, Description, Setting
from trimaran.engines.selection import no_images
from trimaran.errors import BuildError
from trimaran.files import set_aside, sha256, write_atomic
from trimaran.images import content_hash, definition, wheelhouse
from trimaran.images.definition import Image
from trimaran.images.parts import PYTHONS, SYSTEM_PATH
from trimaran.launch.specification import Command, Node
from trimaran.parsing import parse_json
from trimaran.reporting import Advance, Reporter, Silent

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PART = "part-"
TCMALLOC = "libtcmalloc_minimal.so.4"

COMPLETE = ".complete"
"""Name of the JSON file that maps each path in the environment to its hash or link target.

It is written last, so an environment without this file is incomplete.
"""

GLIBC_TUNABLES = {"MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_MMAP_MAX_": "0"}
"""Environment variables that make glibc keep up to 16 GiB of freed memory for the next step.

They are set if tcmalloc, which also keeps freed memory, is not installed. See M_TRIM_THRESHOLD and
M_MMAP_MAX in mallopt(3). `OMP_WAIT_POLICY=passive`, which helps when another process runs, is not
set, because it makes a run on an idle machine slower by a seventh (site/docs/guides/threads.md).
"""


class Host:
    """The host engine, which uses virtual environments in the cache instead of images.

    The name of each environment contains a hash of its inputs.
    """

    name = "host"
    container = False
    form = None
    mounts_images = False

    @classmethod
    def condition(cls) -> Condition:
        """Return whether wheels are locked for this Python, and whether tcmalloc is installed."""
        if PYTHON not in PYTHONS:
            return Condition("warn", f"Python {PYTHON}",
                             f"the locked wheels are for Python {PYTHONS[0]} to {PYTHONS[-1]}")
        if tcmalloc() is None:
            return Condition(
                "warn",
                f"Python {PYTHON}; without tcmalloc training is slower here"
                " (ResNet-50 in fp32 on two cores with AVX2: 3.0 img/s, with it 3.6)",
                "an administrator installs it (Debian: libtcmalloc-minimal4); images have it",
            )
        return Condition("ok", f"Python {PYTHON}, tcmalloc")

    def find(
        self, image: Image, digest: str | None = None, *, thorough: bool = True
    ) -> BuiltImage | None:
        """Return the environment that was made from the current inputs of `image`, or None.

        An environment has no digest, so the result is None if `digest` is given. This method hashes
        only files whose `ctime` is newer than the environment, whereas `build` hashes all files.
        """
        if digest is not None:
            return None
        planned = self.planned(image)
        here = Path(planned.reference).exists()
        return planned if here and self.damage(image) is None else None

    def damage(self, image: Image, digest: str | None = None) -> str | None:
        """Return a description of the first changed file of the environment, or None.

        Only files whose `ctime` is newer than the environment are hashed.
        """
        place = Path(self.planned(image).reference)
        if digest is not None or not place.exists():
            return None
        return _damage(place, Silent(), thorough=False)

    def planned(self, image: Image) -> BuiltImage:
        """Return a description of the environment that `build` would make; it need not exist."""
        content = content_hash.content_of(image)
        inputs = hashlib.sha256(f"{content} {sys.version}".encode()).hexdigest()
        place = paths.cache("host", f"{image.name}-{inputs[:12]}")
        return BuiltImage(image.name, self.name, str(place), None, inputs, 0)

    def build(
        self, image: Image, *, base: str | None, offline: bool, reporter: Reporter
    ) -> BuiltImage:
        """Make the environment from the locked wheels if it does not exist, and return it.

        The folder gets its final name when it is complete. A damaged environment is renamed.

        Raises:
            UsageError: no wheels are locked for this Python.
            BuildError: a base image or another architecture is given, or a wheel cannot be
                downloaded or verified.
        """
        if base is not None:
            raise BuildError("--base: the host engine has no base image",
                             code="arguments-conflict", hint="leave out --base")
        if image.architecture != native():
            raise BuildError("--arch: the host engine uses the processor of this machine",
                             code="engine-unsuitable", hint="use --engine apptainer or podman")
        definition.require_architecture(image)
        planned = self.planned(image)
        place = Path(planned.reference)
        if place.exists() and _damage(place, reporter) is None:
            return planned
        with locks.making(place, reporter):
            if place.exists():  # another process may have made it in the meantime
                fault = _damage(place, reporter)
                if fault is None:
                    return planned
                reporter.warn(f"{fault}; renamed to {set_aside(place).name}, and made again")
            with locks.scratch(place.parent, PART) as part:
                self._fill(image, part / place.name, place, offline, reporter)
                (part / place.name).rename(place)
        return planned

    def _fill(
        self, image: Image, part: Path, place: Path, offline: bool, reporter: Reporter
    ) -> None:
        """Make the environment in the folder `part`, which will be renamed to `place`."""
        with ExitStack() as views:
            wheels: list[Path] = []
            for layer in definition.chain(image):
                items = wheelhouse.fetch(layer, offline=offline, reporter=reporter, python=PYTHON)
                folder = views.enter_context(wheelhouse.view(layer, items))
                wheels += sorted(folder.glob("*/*.whl"))
            _make(wheels, part, place, reporter)

    def test(self, image: Image, built: BuiltImage, reporter: Reporter) -> None:
        """Run the self-test of the image in the environment."""
        place, *words = definition.self_test(image)
        script = next(definition.file_of(image, n) for n, to in image.files.items() if to == place)
        with reporter.bar(f"testing {built.name}", None):
            self.inside(built, [str(script), *words])

    def again(
        self, image: Image, *, base: str | None, reporter: Reporter
    ) -> AbstractContextManager[BuiltImage]:
        """Raise UsageError: the host engine makes no images that could be built a second time."""
        raise no_images(self.name)

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Raise UsageError: the host engine has no image whose Python could run in a container."""
        raise no_images(self.name)

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        """Run the Python of the environment with `words`, and return what it prints."""
        with tempfile.TemporaryDirectory(prefix="trimaran-inside-") as folder:
            argv = [str(Path(built.reference, "bin/python")), *words]
            env = {**self._environment(built), "HOME": folder}
            done = process.run(argv, env=env, cwd=Path(folder), check=BuildError)
        return done.stdout

    def described(self, built: BuiltImage) -> Description:
        """Raise UsageError: an environment has no labels and no entry point."""
        raise no_images(self.name)

    def node(self, built: BuiltImage) -> Node:
        """Return the parts of a run's command that depend on this machine.

        They are the path of Python in the virtual environment, the environment's folder, and the
        environment variables.
        """
        return Node(
            str(Path(built.reference, "bin/python")), built.reference,
            environment=self._environment(built),
        )

    def _environment(self, built: BuiltImage) -> dict[str, str]:
        """Return the environment variables of a process in the virtual environment, except HOME."""
        return {
            "PATH": f"{Path(built.reference, 'bin')}:{SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "PYTHONNOUSERSITE": "1",
            **({"LD_PRELOAD": str(library)} if (library := tcmalloc()) else GLIBC_TUNABLES),
        }


def tcmalloc() -> Path | None:
    """Return the path of the library tcmalloc, or None if it is not installed.

    The library makes training faster.
    """
    for folder in (f"/usr/lib/{MACHINES[native()]}-linux-gnu", "/usr/lib64", "/usr/lib"):
        if (library := Path(folder, TCMALLOC)).exists():
            return library
    return None


@dataclass(frozen=True)
class _Task:
    """One wheel that is unpacked into the folder `part`, which will be renamed to `place`."""

    wheel: Path
    part: Path
    place: Path


def _make(wheels: Sequence[Path], part: Path, place: Path, reporter: Reporter) -> None:
    """Make a virtual environment with `wheels` in `part`, a folder that will be renamed to `place`.

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


def _damage(place: Path, reporter: Reporter, *, thorough: bool = True) -> str | None:
    """Return a description of the first changed file of the environment `place`, or None.

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
    """A builder of virtual environments; no file that it writes contains the environment's path.

    Therefore the folder of the environment can be renamed afterwards.
    """

    def create_configuration(self, context: SimpleNamespace) -> None:
        """Write `pyvenv.cfg` without the line `command`, which contains the environment's path."""
        super().create_configuration(context)
        file = Path(context.cfg_path)
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("command ")]
        file.write_text("".join(kept), encoding="utf-8")

    def setup_scripts(self, context: SimpleNamespace) -> None:
        """Override the method of the base class: no activation scripts are written."""


class _Counting(SchemeDictionaryDestination):
    """A destination for the package `installer` that reports each written file as progress."""

    advance: Advance

    def write_to_fs(
        self, scheme: Scheme, path: str, stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        """Write one file, and report it as progress."""
        self.advance(1)
        # Packages that share a folder may be unpacked at the same time.
        Path(self.scheme_dict[scheme], path).parent.mkdir(parents=True, exist_ok=True)
        return super().write_to_fs(scheme, path, stream, is_executable)


def _unpack(task: _Task, advance: Advance) -> None:
    """Unpack one wheel and compile its Python modules; this function runs in a worker process."""
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
        # As the compiled file has no time stamp of its source, Python never compiles it again. A
        # module that needs a newer Python cannot be compiled, which is not an error.
        compileall.compile_file(
            site / name, stripdir=str(task.part), prependdir=str(task.place), quiet=2,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        advance(1)


def _modules(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if name.endswith(".py")]


def _work(wheel: Path) -> int:
    """Return the approximate number of progress steps that `_unpack` reports for a wheel."""
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
    """Return a dictionary that maps each path in `names` to a text about its content.

    The text contains the hash of the file, the target of the link, or the error.
    """
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
    """Return one line for each file that differs from the RECORD files of its wheels.

    A RECORD file lists the files of a wheel with their hashes. If several wheels contain a file, it
    may have any of the listed hashes.
    """
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
