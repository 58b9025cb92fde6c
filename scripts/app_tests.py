"""Set up, check and test the apps, each in the environment of its framework.

    python scripts/app_tests.py setup           # create the environments: .venv-apps-FRAMEWORK
    python scripts/app_tests.py setup torch     # create the environment of one framework
    python scripts/app_tests.py test            # check types, run all tests except long ones
    python scripts/app_tests.py test --quick    # check no types, run only quick tests
    python scripts/app_tests.py options         # write options.json of each app

`--quick` leaves out the type checks, the toy apps and the tests marked `slow`. The tests that check
computed numbers are included.

An app is a folder with an `app.yaml`, which names its framework. Neither this script nor the
Makefile nor `pyproject.toml` contains the name of an app. An environment has the packages of the
framework's CPU image (its `requirements.lock`), the packages in the locks of the apps' CPU images,
and test tools. trainkit is tested with each framework; its modules in `trainkit/FRAMEWORK/` and its
tests in `tests/on_FRAMEWORK/` are used with that framework only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("apps", "tests/toys/apps")
TRAINKIT = Path("apps/trainkit")
SHARDS = Path("apps/shards")
TOOLS = "requirements/apps-test.lock"
NO_TESTS = 5  # exit status of pytest if no test was selected


class AppsError(Exception):
    """A fault of an app card or of an environment."""


@dataclass(frozen=True)
class Framework:
    """A framework, and the apps that use it.

    Attributes:
        root: path of the checkout.
        name: name of the framework.
        apps: folders of its apps, relative to `root`.
        others: names of the other frameworks that have images.
    """

    root: Path
    name: str
    apps: tuple[Path, ...]
    others: tuple[str, ...]

    @property
    def environment(self) -> Path:
        """The folder of the framework's virtual environment."""
        return self.root / f".venv-apps-{self.name}"

    @property
    def python(self) -> Path:
        """The interpreter of the framework's virtual environment."""
        return self.environment / "bin/python"

    @property
    def image(self) -> str:
        """The name of the framework's CPU image; the virtual environment has the same packages."""
        return f"{self.name}-cpu"

    @property
    def lock(self) -> Path:
        """The lock file with the packages of the framework image."""
        return Path("containers/frameworks", self.image, "requirements.lock")

    @property
    def locks(self) -> dict[str, Path]:
        """Image -> lock file, for the framework image and for each app image that has a lock."""
        names = [f"{app.name}-{self.image}" for app in self.apps]
        own = {name: Path("containers/apps", name, "requirements.lock") for name in names}
        there = {name: lock for name, lock in own.items() if (self.root / lock).is_file()}
        return {self.image: self.lock, **there}

    @property
    def packages(self) -> tuple[Path, ...]:
        """The folders of the packages: shards, trainkit and the apps."""
        return (SHARDS, TRAINKIT, *self.apps)


def frameworks(root: Path) -> list[Framework]:
    """Return the frameworks of the apps in the checkout `root`.

    Raises:
        AppsError: An `app.yaml` names no framework, or one without a CPU image.
    """
    found: dict[str, list[Path]] = {}
    for place in PLACES:
        for file in sorted((root / place).glob("*/app.yaml")):
            found.setdefault(_framework(file), []).append(file.parent.relative_to(root))
    images = {path.name.removesuffix("-cpu") for path in root.glob("containers/frameworks/*-cpu")}
    every = [
        Framework(root, name, tuple(apps), tuple(sorted(images - {name})))
        for name, apps in sorted(found.items())
    ]
    for framework in every:
        if not (root / framework.lock).is_file():
            raise AppsError(
                f"{framework.apps[0]}/app.yaml: framework {framework.name}: no {framework.lock}"
            )
    return every


def _wanted(found: list[Framework], name: str | None) -> list[Framework]:
    """Return the framework `name`, or all frameworks if `name` is None.

    Raises:
        AppsError: No app uses this framework.
    """
    wanted = [one for one in found if name in (None, one.name)]
    if found and not wanted:
        known = " or ".join(one.name for one in found)
        raise AppsError(f"no app uses the framework {name}; use {known}")
    return wanted


def _framework(file: Path) -> str:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise AppsError(f"{file}: {error}") from error
    name = document.get("framework") if isinstance(document, dict) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise AppsError(f"{file}: 'framework' must be a name such as torch or tensorflow")
    return name


def interpreter(root: Path, test: Path) -> Path:
    """Return the interpreter that runs `test`, a file of the checkout `root`.

    Raises:
        AppsError: An app card has faults, or the checkout has no app.
    """
    if test.is_relative_to(SHARDS) or not any(map(test.is_relative_to, PLACES)):
        return root / ".venv/bin/python"
    found = frameworks(root)
    for framework in found:
        own = (*framework.apps, TRAINKIT / "tests" / f"on_{framework.name}")
        if any(test.is_relative_to(folder) for folder in own):
            return framework.python
    if not found:
        raise AppsError(f"{root} has no app, whose environment {test} needs")
    return found[-1].python  # the neutral part of trainkit runs in every environment


def setup(framework: Framework) -> None:
    """Create the environment of `framework`, unless it exists with the locked packages.

    A stamp file, whose name contains a hash of the locks, marks a complete environment. After a
    change of a lock, there is no such file, so the environment is created again.
    """
    root, python = framework.root, str(framework.python)
    installed = [*framework.locks.values(), Path(TOOLS)]
    stamp = framework.environment / f".packages-{_digest(root, installed)}"
    if not stamp.exists():
        run([sys.executable, "-m", "venv", "--clear", str(framework.environment)], root)
        house = framework.environment / "wheelhouse"
        trimaran = str(Path(sys.executable).with_name("trimaran"))
        version = "{}.{}".format(*sys.version_info)
        # --no-deps: a lock is complete, and omits packages that an image must not have.
        # --no-compile: most modules are never imported, and compiling them takes long.
        install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
        locked = [*install, "--require-hashes", "-r"]
        for image, lock in framework.locks.items():
            run([trimaran, "fetch", image, "--to", str(house), "--python", version], root)
            tell(f"installing {image}'s packages ({lock})", [
                *locked, str(lock), "--no-index", "--find-links", str(house / "wheels"),
            ], root)
        tell(f"installing the apps' test tools ({TOOLS})", [*locked, TOOLS], root)
        run(["rm", "-rf", str(house)], root)
        stamp.touch()
    projects = [folder / "pyproject.toml" for folder in framework.packages]
    linked = framework.environment / f".apps-{_digest(root, projects)}"
    if not linked.exists():
        words = [word for folder in framework.packages for word in ("-e", str(folder))]
        run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", *words],
            root)
        linked.touch()


def check_types(framework: Framework) -> bool:
    """Run mypy on trainkit and the apps, and return whether it found no errors.

    The settings of mypy are in Trimaran's `pyproject.toml`.
    """
    sources = [str(folder / "src") for folder in (TRAINKIT, *framework.apps)]
    found = [str(folder / "src") for folder in framework.packages]
    excluded = [word for name in framework.others for word in ("--exclude", f"/trainkit/{name}/")]
    return not status(
        [str(framework.python), "-m", "mypy", "--config-file", "pyproject.toml",
         "--cache-dir", f".mypy_cache/{framework.name}", *excluded, *sources],
        framework.root, MYPYPATH=os.pathsep.join(found),
    )


def suites(
    framework: Framework, places: Sequence[str] = PLACES, *, neutral: bool = True
) -> Iterator[list[str]]:
    """Yield pytest's arguments for the tests of trainkit and of the apps in each of `places`.

    Because of the option `--confcutdir`, pytest ignores any `conftest.py` above that place. If
    `neutral` is false, the tests of trainkit that do not depend on a framework are left out.
    """
    for place in places:
        tested = (TRAINKIT, *framework.apps)  # shards is tested in the environment of the tool
        folders = [path / "tests" for path in tested if path.is_relative_to(place)]
        if not neutral and TRAINKIT / "tests" in folders:
            folders = [TRAINKIT / "tests" / f"on_{framework.name}", *folders[1:]]
        ignored = [f"--ignore={TRAINKIT}/tests/on_{name}" for name in framework.others]
        if folders:
            yield [f"--confcutdir={place}", *ignored, *map(str, folders)]


def run_tests(framework: Framework, *, quick: bool, neutral: bool, left: int) -> bool:
    """Run the tests of trainkit and of the apps, with one call of pytest per folder of `PLACES`.

    Each call runs tests in two processes, and all tests of a module in one of them, because many
    share a training. OpenMP gets one thread in each process, because more threads would compete
    for the cores. If `TEST_UNTIL` is set (see `time_limit.py`), the remaining time is divided by
    `left`, the number of frameworks that are not tested yet, including this one.

    Returns:
        Whether all tests passed.
    """
    chosen = ["--durations=15", "-n", "2", "--dist", "loadscope",
              "-m", "not slow" if quick else "not long"]
    places = PLACES[:1] if quick else PLACES  # toy apps do not affect verdicts
    limit = {}
    if end := os.environ.get("TEST_UNTIL"):
        limit["TEST_UNTIL"] = str(time.time() + (float(end) - time.time()) / left)
    codes = {
        status([str(framework.python), "-m", "pytest", *chosen, *words], framework.root,
               OMP_NUM_THREADS="1", **limit)
        for words in suites(framework, places, neutral=neutral)
    }
    return codes <= {0, NO_TESTS}


def write_options(framework: Framework) -> None:
    """Write the `options.json` of each app from its settings."""
    for app in framework.apps:
        run([str(framework.python), "-m", "trainkit.testing.describe", str(app)], framework.root)


def status(words: Sequence[str], folder: Path, **variables: str) -> int:
    """Run a program in `folder`; return its exit status, or 128 + the number of its signal."""
    environment = os.environ | variables
    # Packages are installed without bytecode; an import of TensorFlow takes 20 s without it.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = subprocess.run(words, cwd=folder, env=environment, check=False).returncode
    return code if code >= 0 else 128 - code


def run(words: Sequence[str], folder: Path, **variables: str) -> None:
    """Run a program in `folder`; exit with its status unless that is 0."""
    if code := status(words, folder, **variables):
        sys.exit(code)


def tell(text: str, words: Sequence[str], folder: Path) -> None:
    """Run a program that prints nothing, and show `text` while the program runs."""
    run(["sh", "scripts/tell.sh", text, *words], folder)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print `what` at the start, and the elapsed time at the end."""
    sys.stdout.write(f"== {what}\n")
    sys.stdout.flush()
    started = time.monotonic()
    yield
    sys.stdout.write(f"== {what}: {time.monotonic() - started:.0f} s\n")
    sys.stdout.flush()


def _digest(root: Path, files: Sequence[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file}\n".encode() + (root / file).read_bytes())
    return total.hexdigest()[:12]


def options(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    setup = verbs.add_parser("setup", help="create the environments")
    setup.add_argument("framework", nargs="?", metavar="FRAMEWORK", help="only this framework")
    verbs.add_parser("options", help="write options.json of each app")
    test = verbs.add_parser("test", help="check types and run the tests")
    test.add_argument("--quick", action="store_true",
                      help="only the tests that check computed numbers")
    return parser.parse_args(words)


def main(words: Sequence[str], root: Path = ROOT) -> int:
    """Run the command line `words`; return the exit code."""
    asked = options(words)
    try:
        found = _wanted(frameworks(root), getattr(asked, "framework", None))
    except AppsError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    passed = True
    for place, framework in enumerate(found):
        with timed(f"{framework.name}: environment"):
            setup(framework)
        if asked.verb == "options":
            write_options(framework)
        if asked.verb == "test" and not asked.quick:
            with timed(f"{framework.name}: types"):
                passed &= check_types(framework)
        if asked.verb == "test":
            with timed(f"{framework.name}: tests"):
                # The part of trainkit that serves all frameworks is tested with the last one.
                passed &= run_tests(framework, quick=asked.quick, neutral=framework == found[-1],
                                    left=len(found) - place)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
