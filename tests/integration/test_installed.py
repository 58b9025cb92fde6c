"""The wheel in a new environment offers everything that a checkout offers, from any folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinyapp
from registries import running
from trimaran import __version__, paths
from trimaran.files import sha256
from trimaran.images import content_hash, definition, indexes

pytestmark = [pytest.mark.usefixtures("user_cache"), pytest.mark.timeout(600)]

ROOT = paths.repository()
KINDS = ("images", "recipes", "targets", "data", "apps")
INSTALLED = "[definition-installed]"


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
    """Return a virtual environment with the locked packages and the wheel of Trimaran.

    The folders of the wheel's data files are read-only.
    """
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
    """Return the options of uv for the package indexes and folders that pip uses here."""
    found = indexes.configured()
    words = ["--default-index", found.indexes[0], "--index-strategy", "unsafe-first-match"]
    words += [word for index in found.indexes[1:] for word in ("--index", index)]
    return words + [word for folder in found.find_links for word in ("--find-links", str(folder))]


class Trimaran:
    """The installed command `trimaran`, run with few variables and in a folder of its own."""

    def __init__(self, place: Path, folder: Path) -> None:
        self.place, self.folder = place, folder

    def __call__(
        self, *words: str, timeout: float = 280, cache: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(self.folder), "COLUMNS": "160", "PATH": os.environ["PATH"],
               "TRIMARAN_CACHE": str(cache or os.environ["TRIMARAN_CACHE"])}
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
    shards = {name for name in known if name.startswith("apps/shards/src/")}
    assert {name.removeprefix("apps/shards/src/") for name in shards} <= set(names)


def test_it_says_its_version(trimaran: Trimaran) -> None:
    assert trimaran("--version").stdout == f"trimaran {__version__}\n"


@pytest.mark.parametrize("words", [
    *(("list", kind, "--json") for kind in KINDS), ("show", "images", "resnet-imagenet-torch-cpu"),
    ("show", "recipes", "resnet-imagenet/cpu-quickstart"), ("show", "targets", "cpu-2core"),
    ("show", "data", "fashion-mnist"), ("show", "apps", "resnet-imagenet"),
], ids=" ".join)
def test_it_lists_and_shows_what_the_checkout_has(
    trimaran: Trimaran, words: tuple[str, ...]
) -> None:
    done = trimaran(*words)
    assert done.returncode == 0, done.stderr
    checkout = subprocess.run(
        [sys.executable, "-c", "from trimaran.cli import main; main()", *words],
        capture_output=True, text=True, check=True,
    )
    assert json.loads(done.stdout) == json.loads(checkout.stdout)


def test_its_images_are_those_of_the_checkout(trimaran: Trimaran) -> None:
    """The images of the installed wheel have the same content hashes as those of the checkout.

    Otherwise the wheel would not find images that a checkout has built, and vice versa.
    """
    code = (
        "from trimaran.images import content_hash, definition\n"
        "for image in map(definition.load, definition.names()):\n"
        "    print(image.name, content_hash.content_of(image))\n"
    )
    done = subprocess.run(
        [str(trimaran.place / "bin/python"), "-I", "-c", code], capture_output=True, text=True,
        check=True, cwd=trimaran.folder,
    )
    found = dict(line.split() for line in done.stdout.splitlines())
    images = map(definition.load, definition.names())
    assert found == {image.name: content_hash.content_of(image) for image in images}


@pytest.mark.parametrize(
    "words", [("lock", "torch-cpu"), ("render",), ("render", "torch-cpu"), ("schema",)]
)
def test_it_does_not_change_what_was_installed(
    trimaran: Trimaran, words: tuple[str, ...]
) -> None:
    done = trimaran(*words)
    assert done.returncode == 2
    assert INSTALLED in done.stderr
    assert "TRIMARAN_ROOT" in done.stderr


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of the user with a small app, its images, and their base images."""
    folder = tmp_path / "own"
    for name in ("recipes/data", "containers", "apps"):
        (folder / name).mkdir(parents=True)
    with monkeypatch.context() as context:
        context.setenv("TRIMARAN_ROOT", str(folder))
        tinyapp.write(folder, tmp_path / "sources")
    return folder


@pytest.mark.long
@pytest.mark.engine("apptainer")
@pytest.mark.engine("registry")
def test_it_builds_an_image_and_pulls_it_elsewhere(
    trimaran: Trimaran, own: Path, engine_cache: Path, tmp_path: Path
) -> None:
    def call(*words: str, cache: Path = engine_cache) -> str:
        done = trimaran(*words, "--recipes", str(own), cache=cache)
        assert done.returncode == 0, done.stderr
        return done.stdout

    call("build", tinyapp.APP_IMAGE, "--engine", "apptainer")
    with running(tmp_path / "harbour") as server:
        call("push", tinyapp.APP_IMAGE, "--registry", server.namespace)
        digest = call("pull", tinyapp.APP_IMAGE, cache=tmp_path / "away").split()[1]
    call("test-image", tinyapp.APP_IMAGE, cache=tmp_path / "away")
    [here] = engine_cache.glob(f"images/{tinyapp.APP_IMAGE}-*.sif")
    [pulled] = tmp_path.glob(f"away/images/{tinyapp.APP_IMAGE}-*.sif")
    assert digest == f"sha256:{sha256(here)}" == f"sha256:{sha256(pulled)}"


@pytest.mark.trains
@pytest.mark.alone
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
