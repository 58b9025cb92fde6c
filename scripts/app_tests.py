"""Set up, check and test the apps, each in the environment of its framework.

    python scripts/app_tests.py setup           # the environments: .venv-apps-FRAMEWORK
    python scripts/app_tests.py setup torch     # that of one framework
    python scripts/app_tests.py test            # types, then all tests but the long ones
    python scripts/app_tests.py test --quick    # the tests that guard numbers
    python scripts/app_tests.py options         # write options.json of each app anew

An app is a folder with an `app.yaml`, which names its framework; nothing here, in the Makefile or
in `pyproject.toml` names an app. Packages are those of the framework's CPU image (its
`requirements.lock`), those that an app's CPU image brings, and the apps' test tools. trainkit is
tested with each framework: its modules in `trainkit/FRAMEWORK/` and its tests in
`tests/on_FRAMEWORK/` with that one only.
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
NO_TESTS = 5  # exit status of pytest where none was chosen


class AppsError(Exception):
    """An app or an environment that is not as it should be."""


@dataclass(frozen=True)
class Framework:
    """A framework, and the apps that are written in it.

    Attributes:
        root: the checkout.
        name: the framework.
        apps: folders of its apps, relative to `root`.
        others: names of the other frameworks that there are images of.
    """

    root: Path
    name: str
    apps: tuple[Path, ...]
    others: tuple[str, ...]

    @property
    def environment(self) -> Path:
        """The folder of its virtual environment."""
        return self.root / f".venv-apps-{self.name}"

    @property
    def python(self) -> Path:
        """The interpreter of its virtual environment."""
        return self.environment / "bin/python"

    @property
    def image(self) -> str:
        """The framework image whose packages it has."""
        return f"{self.name}-cpu"

    @property
    def lock(self) -> Path:
        """The locked packages of that image."""
        return Path("containers/frameworks", self.image, "requirements.lock")

    @property
    def locks(self) -> dict[str, Path]:
        """The locked packages of that image, and of its apps' images that bring some of theirs."""
        names = [f"{app.name}-{self.image}" for app in self.apps]
        own = {name: Path("containers/apps", name, "requirements.lock") for name in names}
        there = {name: lock for name, lock in own.items() if (self.root / lock).is_file()}
        return {self.image: self.lock, **there}

    @property
    def packages(self) -> tuple[Path, ...]:
        """The folders of shards, of trainkit and of its apps."""
        return (SHARDS, TRAINKIT, *self.apps)


def frameworks(root: Path) -> list[Framework]:
    """Return the frameworks that the apps of the checkout `root` are written in.

    Raises:
        AppsError: an `app.yaml` names none, or one without a CPU image.
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
    """Return the framework called `name`; all of them where it is None.

    Raises:
        AppsError: no app is written in it.
    """
    wanted = [one for one in found if name in (None, one.name)]
    if found and not wanted:
        known = " or ".join(one.name for one in found)
        raise AppsError(f"no app is written in {name}: say {known}")
    return wanted


def _framework(file: Path) -> str:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise AppsError(f"{file}: {error}") from error
    name = document.get("framework") if isinstance(document, dict) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise AppsError(f"{file}: 'framework' names none, such as torch or tensorflow")
    return name


def interpreter(root: Path, test: Path) -> Path:
    """Return the interpreter that runs `test`, a file of the checkout `root`.

    Raises:
        AppsError: an app is not as it should be, or there is none.
    """
    if test.is_relative_to(SHARDS) or not any(map(test.is_relative_to, PLACES)):
        return root / ".venv/bin/python"
    found = frameworks(root)
    for framework in found:
        own = (*framework.apps, TRAINKIT / "tests" / f"on_{framework.name}")
        if any(test.is_relative_to(folder) for folder in own):
            return framework.python
    if not found:
        raise AppsError(f"no app in {root}, in whose environment {test} could run")
    return found[-1].python  # trainkit's neutral half runs in each


def setup(framework: Framework) -> None:
    """Make the environment of `framework`, unless it is there with the locked packages.

    A stamp is named after the content of what was installed: other content, another stamp.
    """
    root, python = framework.root, str(framework.python)
    installed = [*framework.locks.values(), Path(TOOLS)]
    stamp = framework.environment / f".packages-{_digest(root, installed)}"
    if not stamp.exists():
        run([sys.executable, "-m", "venv", "--clear", str(framework.environment)], root)
        house = framework.environment / "wheelhouse"
        trimaran = str(Path(sys.executable).with_name("trimaran"))
        version = "{}.{}".format(*sys.version_info)
        # --no-deps: a lock is complete, and leaves out what an image is not to have.
        # --no-compile: what is never imported is most of it, and took longer than the rest.
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


def check_types(framework: Framework) -> None:
    """Run mypy over trainkit and the apps, as strict as over the tool."""
    sources = [str(folder / "src") for folder in (TRAINKIT, *framework.apps)]
    found = [str(folder / "src") for folder in framework.packages]
    excluded = [word for name in framework.others for word in ("--exclude", f"/trainkit/{name}/")]
    run(
        [str(framework.python), "-m", "mypy", "--config-file", "pyproject.toml",
         "--cache-dir", f".mypy_cache/{framework.name}", *excluded, *sources],
        framework.root, MYPYPATH=os.pathsep.join(found),
    )


def suites(
    framework: Framework, places: Sequence[str] = PLACES, *, neutral: bool = True
) -> Iterator[list[str]]:
    """Yield the words by which pytest finds the tests of trainkit and of the apps, by place.

    A folder above may have a `conftest.py` that is not the apps'. Without `neutral`, only the
    framework's own half of trainkit is tested.
    """
    for place in places:
        tested = (TRAINKIT, *framework.apps)  # shards in the tool's environment
        folders = [path / "tests" for path in tested if path.is_relative_to(place)]
        if not neutral and TRAINKIT / "tests" in folders:
            folders = [TRAINKIT / "tests" / f"on_{framework.name}", *folders[1:]]
        ignored = [f"--ignore={TRAINKIT}/tests/on_{name}" for name in framework.others]
        if folders:
            yield [f"--confcutdir={place}", *ignored, *map(str, folders)]


def run_tests(framework: Framework, *, quick: bool, neutral: bool) -> bool:
    """Run the tests of trainkit and of the apps, those of each place by themselves.

    Returns whether they passed: those of another framework are tried, too.

    One thread for each of the two processes: threads that wait for each other would be slow
    beside those of the other.
    """
    chosen = ["-n", "2", "-m", "not slow" if quick else "not long"]
    places = PLACES[:1] if quick else PLACES  # no verdict rests on the numbers of a toy
    codes = {
        status([str(framework.python), "-m", "pytest", *chosen, *words], framework.root,
               OMP_NUM_THREADS="1")
        for words in suites(framework, places, neutral=neutral)
    }
    return codes <= {0, NO_TESTS}


def write_options(framework: Framework) -> None:
    """Have the apps write their `options.json` anew, from their settings."""
    for app in framework.apps:
        run([str(framework.python), "-m", "trainkit.testing.describe", str(app)], framework.root)


def status(words: Sequence[str], folder: Path, **variables: str) -> int:
    """Run a program in `folder`; return its exit status, 128 and its number after a signal."""
    environment = os.environ | variables
    # Packages are installed without compiled files: an import of TensorFlow takes 20 s without.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = subprocess.run(words, cwd=folder, env=environment, check=False).returncode
    return code if code >= 0 else 128 - code


def run(words: Sequence[str], folder: Path, **variables: str) -> None:
    """Run a program in `folder`; end with its exit status unless that is 0."""
    if code := status(words, folder, **variables):
        sys.exit(code)


def tell(text: str, words: Sequence[str], folder: Path) -> None:
    """Run a program that says nothing, and say that it goes on."""
    run(["sh", "scripts/tell.sh", text, *words], folder)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what begins, and at its end how long it took."""
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
    """Return what the words ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    setup = verbs.add_parser("setup", help="make the environments")
    setup.add_argument("framework", nargs="?", metavar="FRAMEWORK", help="of this one only")
    verbs.add_parser("options", help="write options.json of each app anew")
    test = verbs.add_parser("test", help="check types and run the tests")
    test.add_argument("--quick", action="store_true", help="only the tests that guard numbers")
    return parser.parse_args(words)


def main(words: Sequence[str], root: Path = ROOT) -> int:
    """Do what the words ask for; return the exit code."""
    asked = options(words)
    try:
        found = _wanted(frameworks(root), getattr(asked, "framework", None))
    except AppsError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    passed = True
    for framework in found:
        with timed(f"{framework.name}: environment"):
            setup(framework)
        if asked.verb == "options":
            write_options(framework)
        if asked.verb == "test" and not asked.quick:
            with timed(f"{framework.name}: types"):
                check_types(framework)
        if asked.verb == "test":
            with timed(f"{framework.name}: tests"):
                # A quick run tests the half of trainkit that needs no framework only once.
                neutral = not asked.quick or framework == found[-1]
                passed &= run_tests(framework, quick=asked.quick, neutral=neutral)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
