"""What all tests share: every test works in a folder and a cache of its own."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from finished import write_recipe
from sifs import TINY
from trimaran import paths
from trimaran.images import definition
from trimaran.recipes.library import RecipeFile

# `nohup make test &` would have the tests and all that they start ignore both.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = ["toys"]  # apps: their tests run where their framework is (make test-apps)

# Tests and their children work in other folders, and are to find the same tree there.
if "PYTHONPATH" in os.environ:
    places = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(place).absolute()) for place in places)


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in an empty folder with an empty cache and no engine chosen."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("TRIMARAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ENGINE", raising=False)
    monkeypatch.setenv("TRIMARAN_RECIPES", "")  # --recipes and a site file set it
    return work


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkout of its own, with what a recipe names, that a test may fill and break."""
    root = tmp_path / "checkout"
    for folder in ("recipes/targets", "recipes/data", "containers", "apps"):
        (root / folder).mkdir(parents=True)
    source = paths.repository()
    for name in ("recipes/targets/cpu-2core.yaml", "recipes/data/fashion-mnist.yaml",
                 "apps/resnet-imagenet/app.yaml"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text((source / name).read_text())
    monkeypatch.setenv("TRIMARAN_ROOT", str(root))
    return root


@pytest.fixture
def recipe(checkout: Path) -> RecipeFile:
    """The recipe GOOD of the small checkout."""
    return write_recipe(checkout)


@pytest.fixture
def tiny_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the tests' image `tiny` for each image name, of which the small checkout defines none."""
    monkeypatch.setattr(definition, "load", lambda name: TINY)


@pytest.fixture(scope="module")
def collected_sockets() -> Iterator[None]:
    """Collect the sockets that urllib3 leaves when a server cuts it off, before other tests run.

    Where one is collected decides which test fails for it. A module that uses this fixture
    ignores pytest's warnings of unraisable exceptions.
    """
    yield
    gc.collect()
