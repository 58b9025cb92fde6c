"""Fixtures for real engines: a test marked `engine(NAME)` is skipped if the engine is missing.

With TRIMARAN_REQUIRE_ENGINES=1, as in CI, a missing engine is a failure.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

import cluster
import tinyapp
from trimaran import hostfacts, paths
from trimaran.engines import apptainer
from trimaran.engines.podman import STORAGE
from trimaran.errors import BuildError, UsageError
from trimaran.images import definition, emulation

USER_CACHE = paths.cache()
"""The cache outside the tests, from which tests take large files that are verified by hash."""

TINY = Path(__file__).parents[1] / "images/tiny/image.yaml"


@functools.cache  # asked while tests are collected, before they change the cache
def missing(engine: str) -> str | None:
    """Return why `engine` cannot be used here, or None."""
    if engine == "apptainer" and apptainer.program() is None:
        return "Apptainer is not installed (make apptainer)"
    if engine == "podman":
        lacking = [name for name in ("buildah", "podman") if shutil.which(name) is None]
        if lacking:
            return f"{' and '.join(lacking)} not installed"
    if engine == "node" and not (shutil.which("node") and shutil.which("npm")):
        return "node or npm is not installed"
    if engine == "strace" and shutil.which("strace") is None:
        return "strace is not installed"
    if engine == "registry" and shutil.which("docker-registry") is None:
        return "docker-registry is not installed"
    if engine == "openmpi" and shutil.which("mpirun.openmpi") is None:
        return "Open MPI is not installed"
    if engine == "arm64":
        try:
            emulation.require_processor("arm64")
        except BuildError as error:
            return error.message
    if engine == "mpich" and shutil.which("mpirun.mpich") is None:
        return "MPICH is not installed"
    if engine.startswith("apps-") and not (paths.repository() / f".venv-{engine}/bin").exists():
        return f".venv-{engine} is not there (make test-apps)"
    if engine == "slurm":
        try:
            for daemon in cluster.DAEMONS:
                cluster.find(daemon)
        except UsageError as error:
            return f"{error} ({error.hint})"
    if engine in ("apptainer", "podman") and hostfacts.root_lacks_capabilities():
        return "this root has no CAP_SYS_RESOURCE: run the tests as an ordinary user"
    return None


class ByModule(LoadScopeScheduling):
    """A scheduler that runs all tests of a module on one worker, because fixtures are expensive.

    All modules that use podman run on the same worker, because podman's storage belongs to the
    user: one test could remove an image that another test needs. All modules that use Slurm also
    run on one worker, because processes of a job are found by the job number, which is not unique
    among clusters. xdist's own groups (`--dist loadgroup`) have no effect with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        source = (paths.repository() / module).read_text()
        return next((one for one in ("podman", "slurm") if f'engine("{one}")' in source), module)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByModule:
    """Return the scheduler that divides the tests among the workers of `-n`."""
    return ByModule(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests whose engine is missing as skipped, unless TRIMARAN_REQUIRE_ENGINES is 1."""
    for item in items:
        for marker in item.iter_markers("engine"):
            reason = missing(str(marker.args[0]))
            if reason and os.environ.get("TRIMARAN_REQUIRE_ENGINES") != "1":
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def require_engines(request: pytest.FixtureRequest) -> None:
    """Fail a test whose engine is missing, if TRIMARAN_REQUIRE_ENGINES is 1.

    Otherwise `pytest_collection_modifyitems` has already marked this test as skipped.
    """
    for marker in request.node.iter_markers("engine"):
        reason = missing(str(marker.args[0]))
        if reason:
            pytest.fail(f"TRIMARAN_REQUIRE_ENGINES=1, and {reason}")


@pytest.fixture(scope="session", autouse=True)
def own_apptainer_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a temporary Apptainer cache, so that the user's cache does not grow with every run."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("APPTAINER_CACHEDIR", str(tmp_path_factory.mktemp("apptainer-cache")))
        yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the tests' images from podman's storage when all workers have ended."""
    if not hasattr(session.config, "workerinput") and missing("podman") is None:
        for title in ("tiny", tinyapp.APP_IMAGE):
            label = f"label=org.opencontainers.image.title={title}"
            found = _podman("images", "--all", "--quiet", "--filter", label).split()
            if found:
                _podman("rmi", "--force", *dict.fromkeys(found))


def _podman(*words: str) -> str:
    return subprocess.run(
        ["podman", *STORAGE, *words], check=True, capture_output=True, text=True, timeout=280
    ).stdout


def new_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache without images, which shares verified downloads with the user's cache."""
    cache = tmp_path_factory.mktemp("cache")
    for name in ("bases", "wheelhouse", "apptainer"):
        (USER_CACHE / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(USER_CACHE / name)
    return cache


@pytest.fixture(scope="module")
def engine_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache without images, which shares verified downloads with the user's cache."""
    return new_cache(tmp_path_factory)


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a checkout with a small app, and a cache with its image and data, as a master copy."""
    root, cache = tmp_path_factory.mktemp("tinyapp"), new_cache(tmp_path_factory)
    tinyapp.build(root, tmp_path_factory.mktemp("sources"), cache)
    return root, cache


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, engine_cache: Path, pattern: tuple[Path, Path]
) -> Path:
    """Return a checkout with a small app, which all tests of one module share.

    The image and the data are copied to the cache of the checkout.
    """
    checkout, cache = pattern
    root = tmp_path_factory.mktemp("place")
    shutil.copytree(checkout, root, dirs_exist_ok=True)
    copy_cache(cache, engine_cache)
    return root


def copy_cache(cache: Path, to: Path) -> None:
    """Copy the images and data of `cache`, and replace its path in the records of the images."""
    for path in cache.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, to / path.name, symlinks=True, dirs_exist_ok=True)
    for record in (to / "images").glob("*.json"):
        record.write_text(record.read_text().replace(str(cache), str(to)))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a Slurm cluster of two nodes for one module, and return its folder."""
    folder = tmp_path_factory.mktemp("c")
    cluster.start(folder)
    try:
        yield folder
    finally:
        cluster.stop(folder)


@pytest.fixture
def trimaran(place: Path, engine_cache: Path) -> tinyapp.Trimaran:
    """Return a function that runs `trimaran` in `place`; keyword arguments set variables."""
    return lambda *words, **env: tinyapp.call(
        list(words), tinyapp.environment(place, engine_cache, **env)
    )


@pytest.fixture
def user_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the user's cache: its files are verified by hash, and downloading them again is slow."""
    monkeypatch.setenv("TRIMARAN_CACHE", str(USER_CACHE))


@pytest.fixture(scope="session")
def tiny() -> definition.Image:
    """Return the definition of an image of Debian, Python and a wheel, which builds in seconds."""
    return definition.read(TINY)
