"""The host engine: a virtual environment with the wheels of an image's lock, without a container.

It is for machines without a container engine, and for development. A run uses libraries of
the host, so its results are not evidence.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from trimaran import locks, paths, process
from trimaran.engines import BuiltImage, Condition, Description, Setting, environment, store
from trimaran.engines.selection import no_images
from trimaran.errors import BuildError
from trimaran.files import set_aside
from trimaran.images import definition, wheelhouse
from trimaran.images.definition import Image
from trimaran.images.parts import PYTHONS, SYSTEM_PATH
from trimaran.launch.specification import Command, Node
from trimaran.reporting import Reporter, Silent

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PART = "part-"
TCMALLOC = "libtcmalloc_minimal.so.4"

GLIBC_TUNABLES = {"MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_MMAP_MAX_": "0"}
"""Variables with which glibc keeps up to 16 GiB of freed memory for the next step, like tcmalloc.

See M_TRIM_THRESHOLD and M_MMAP_MAX in mallopt(3). `OMP_WAIT_POLICY=passive`, which helps when
another process runs, is not set: it makes a run on an idle machine slower by a seventh
(site/docs/guides/threads.md).
"""


class Host:
    """Virtual environments in the cache, named after the hash of their inputs."""

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
        """Return the environment made from the current inputs of `image`, or None.

        An environment has no digest, so a search by digest finds nothing. Only files with a new
        `ctime` are hashed here, whereas `build` hashes all files.
        """
        if digest is not None:
            return None
        planned = self.planned(image)
        here = Path(planned.reference).exists()
        return planned if here and self.damage(image) is None else None

    def damage(self, image: Image, digest: str | None = None) -> str | None:
        """Return the first changed file of the environment, or None.

        Only files whose `ctime` is newer than the environment are hashed.
        """
        place = Path(self.planned(image).reference)
        if digest is not None or not place.exists():
            return None
        return environment.damage(place, Silent(), thorough=False)

    def planned(self, image: Image) -> BuiltImage:
        """Return a description of the environment that `build` would make; it need not exist."""
        inputs = hashlib.sha256(f"{store.content_of(image)} {sys.version}".encode()).hexdigest()
        place = paths.cache("host", f"{image.name}-{inputs[:12]}")
        return BuiltImage(image.name, self.name, str(place), None, inputs, 0)

    def build(
        self, image: Image, *, base: str | None, offline: bool, reporter: Reporter
    ) -> BuiltImage:
        """Make the environment from the locked wheels if it does not exist, and return it.

        The folder gets its final name when it is complete. A damaged environment is renamed.

        Raises:
            UsageError: no wheels are locked for this Python.
            BuildError: a base image is given, or a wheel cannot be downloaded or verified.
        """
        if base is not None:
            raise BuildError("--base: the host engine has no base image",
                             code="arguments-conflict", hint="leave out --base")
        planned = self.planned(image)
        place = Path(planned.reference)
        if place.exists() and environment.damage(place, reporter) is None:
            return planned
        with locks.making(place, reporter):
            if place.exists():  # another process may have made it in the meantime
                fault = environment.damage(place, reporter)
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
        """Make the environment in `part`, which will be renamed to `place`."""
        with ExitStack() as views:
            wheels: list[Path] = []
            for layer in definition.chain(image):
                items = wheelhouse.fetch(layer, offline=offline, reporter=reporter, python=PYTHON)
                folder = views.enter_context(wheelhouse.view(layer, items))
                wheels += sorted(folder.glob("*/*.whl"))
            environment.make(wheels, part, place, reporter)

    def test(self, image: Image, built: BuiltImage, reporter: Reporter) -> None:
        """Run the self-test of the image in the environment."""
        place, *words = definition.self_test(image)
        script = next(definition.file_of(image, n) for n, to in image.files.items() if to == place)
        with reporter.bar(f"testing {built.name}", None):
            self.inside(built, [str(script), *words])

    def again(
        self, image: Image, *, base: str | None, reporter: Reporter
    ) -> AbstractContextManager[BuiltImage]:
        """Raise UsageError: the host engine makes no images, so there is no second build."""
        raise no_images(self.name)

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Raise UsageError: the host engine has no image whose Python could run in a container."""
        raise no_images(self.name)

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        """Run the Python of the environment with `words`, and return its output."""
        with tempfile.TemporaryDirectory(prefix="trimaran-inside-") as folder:
            argv = [str(Path(built.reference, "bin/python")), *words]
            env = {**self._environment(built), "HOME": folder}
            done = process.run(argv, env=env, cwd=Path(folder), check=BuildError)
        return done.stdout

    def described(self, built: BuiltImage) -> Description:
        """Raise UsageError: an environment has no labels and no entry point."""
        raise no_images(self.name)

    def node(self, built: BuiltImage) -> Node:
        """Return the part of a launch specification that depends on this machine."""
        return Node(
            str(Path(built.reference, "bin/python")), built.reference,
            environment=self._environment(built),
        )

    def _environment(self, built: BuiltImage) -> dict[str, str]:
        """Return the variables of a process in the virtual environment, without HOME."""
        return {
            "PATH": f"{Path(built.reference, 'bin')}:{SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "PYTHONNOUSERSITE": "1",
            **({"LD_PRELOAD": str(library)} if (library := tcmalloc()) else GLIBC_TUNABLES),
        }


def tcmalloc() -> Path | None:
    """Return the path of tcmalloc on this host, which makes training faster, or None."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"):
        if (library := Path(folder, TCMALLOC)).exists():
            return library
    return None
