"""The built wheel in a clean environment gives all that a checkout does, from any folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran import __version__, paths
from trimaran.images import definition, indexes

pytestmark = [pytest.mark.usefixtures("user_cache"), pytest.mark.timeout(600)]

ROOT = paths.repository()
KINDS = ("images", "recipes", "targets", "data", "apps")
INSTALLED = "was installed with trimaran and is not to be changed"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
         "-w", str(folder), str(ROOT)],
        check=True,
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A virtual environment with the locked packages and the wheel; nobody may write into it."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    uv = [str(Path(sys.executable).with_name("uv"))]  # in seconds, where pip takes minutes
    install = [*uv, "pip", "install", "-q", "--no-config", "--no-deps", "--python", str(place)]
    lock = ["--require-hashes", "-r", str(ROOT / "requirements/tool.lock")]
    for words in (
        [*uv, "venv", "-q", "--python", sys.executable, str(place)],
        [*install, *_sources(), *lock],
        [*install, "--offline", str(wheel)],
        [*uv, "pip", "check", "-q", "--python", str(place)],  # the lock has all that it asks for
    ):
        subprocess.run(words, check=True, env={**os.environ, "UV_SYSTEM_CERTS": "1"})
    share = next(place.glob("lib/*/site-packages/trimaran/share"))
    folders = [share, *(path for path in share.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield place
    for folder in folders:
        folder.chmod(0o755)


def _sources() -> list[str]:
    """Return uv's options for where pip would look on this machine."""
    found = indexes.configured()
    words = ["--default-index", found.indexes[0], "--index-strategy", "unsafe-first-match"]
    words += [word for index in found.indexes[1:] for word in ("--index", index)]
    return words + [word for folder in found.find_links for word in ("--find-links", str(folder))]


class Trimaran:
    """The installed command, in an empty environment and a folder of its own."""

    def __init__(self, place: Path, folder: Path) -> None:
        self.place, self.folder = place, folder

    def __call__(self, *words: str, timeout: float = 280) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(self.folder), "COLUMNS": "160", "PATH": os.environ["PATH"],
               "TRIMARAN_CACHE": os.environ["TRIMARAN_CACHE"]}
        return subprocess.run(
            [str(self.place / "bin/trimaran"), *words], env=env, cwd=self.folder, text=True,
            capture_output=True, check=False, timeout=timeout,
        )


@pytest.fixture
def trimaran(place: Path, tmp_path: Path) -> Trimaran:
    return Trimaran(place, tmp_path)


def test_the_wheel_has_the_definitions_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    share = {name.partition("trimaran/share/")[2] for name in names if "/share/" in name}
    known = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "recipes", "containers", "apps",
         "site/results"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()
    tests = {name for name in known if name.startswith("apps/") and "/tests/" in name}
    definitions = set(known) - tests
    assert share == definitions - {"apps/conftest.py"}


def test_it_says_its_version(trimaran: Trimaran) -> None:
    assert trimaran("--version").stdout == f"trimaran {__version__}\n"


@pytest.mark.parametrize("kind", KINDS)
def test_it_lists_what_the_checkout_has(trimaran: Trimaran, kind: str) -> None:
    done = trimaran("list", kind, "--json")
    assert done.returncode == 0, done.stderr
    checkout = subprocess.run(
        [sys.executable, "-c", "from trimaran.cli import main; main()", "list", kind, "--json"],
        capture_output=True, text=True, check=True,
    )
    assert json.loads(done.stdout) == json.loads(checkout.stdout)


def test_its_images_are_those_of_the_checkout(trimaran: Trimaran) -> None:
    """Else what one of them has built would be unknown to the other."""
    code = (
        "from trimaran.images import definition as d\n"
        "print('\\n'.join(f'{n} {d.content(d.load(n))}' for n in d.names()))"
    )
    done = subprocess.run(
        [str(trimaran.place / "bin/python"), "-I", "-c", code], capture_output=True, text=True,
        check=True, cwd=trimaran.folder,
    )
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found == {name: definition.content(definition.load(name)) for name in definition.names()}


@pytest.mark.parametrize(
    "words", [("lock", "torch-cpu"), ("render",), ("render", "torch-cpu"), ("render", "--check"),
              ("schema",)]
)
def test_it_does_not_change_what_was_installed(
    trimaran: Trimaran, words: tuple[str, ...]
) -> None:
    done = trimaran(*words)
    assert done.returncode == 2
    assert INSTALLED in done.stderr
    assert "TRIMARAN_ROOT" in done.stderr


@pytest.mark.trains
@pytest.mark.engine("apptainer")
def test_it_runs_a_recipe_in_the_container_that_the_checkout_uses(trimaran: Trimaran) -> None:
    short = ["--set", "max-steps=4", "--set", "log-every=2"]
    done = trimaran(
        "run", "resnet-imagenet/cpu-quickstart", "--engine", "apptainer", "--out", "run", *short
    )
    assert done.returncode == 5, done.stdout + done.stderr
    record = json.loads((trimaran.folder / "run/run.json").read_text())
    assert record["status"] == "completed"
    assert record["git"] == {"revision": None, "dirty": None}
