"""Fixtures of all tests; each test has its own working directory and cache."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import time_limit
from finished import write_recipe
from sifs import TINY
from trimaran import paths
from trimaran.images import definition
from trimaran.recipes.library import RecipeFile

# With `nohup make test &`, the tests and their child processes would ignore both signals.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = ["toys"]  # apps, tested in the environments of their frameworks (make test-apps)

# Tests and their child processes change the working directory, so the paths must be absolute.
if "PYTHONPATH" in os.environ:
    places = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(place).absolute()) for place in places)


def pytest_configure(config: pytest.Config) -> None:
    """Leave out tests that would take too long on a slow machine."""
    time_limit.register(config)


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in an empty folder with an empty cache and no engine chosen."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("TRIMARAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ENGINE", raising=False)
    monkeypatch.setenv("TRIMARAN_RECIPES", "")  # set by --recipes and by a site file
    return work


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new small checkout with the files that a recipe needs; a test may change it."""
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
    """Write the recipe GOOD of `samples.py` into the small checkout, and return it."""
    return write_recipe(checkout)


@pytest.fixture
def tiny_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the image `tiny` of the tests for every name, as the small checkout has no images."""
    monkeypatch.setattr(definition, "load", lambda name: TINY)


@pytest.fixture(scope="module")
def collected_sockets() -> Iterator[None]:
    """Run the garbage collector after the tests of a module, to close urllib3's sockets.

    urllib3 leaves a socket open after a lost connection. If the garbage collector closed it during
    an unrelated test, that test could fail. A module that uses this fixture ignores pytest's
    warnings of unraisable exceptions.
    """
    yield
    gc.collect()
