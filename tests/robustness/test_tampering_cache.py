"""Damage every kind of file in the cache: the damage is reported, and damaged content is not used.

Each case creates a file, and has a function that uses the file. The function must return the same
result after the damage as before.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import datasets
import sifs
import wheels
from damage import WAYS, spoil
from trimaran import locks, paths
from trimaran.architectures import Architecture
from trimaran.data import cache, sources
from trimaran.data.packing.idx import Images
from trimaran.engines import BuiltImage, image_contents
from trimaran.engines.host import Host
from trimaran.images import bases, definition, wheelhouse
from trimaran.images.wheelhouse import Item
from trimaran.reporting import Silent

TINY = Path(__file__).parents[1] / "images/tiny"


@dataclass(frozen=True)
class Case:
    """A file of the cache, a function that uses it, and whether the use must report its damage."""

    file: Path
    use: Callable[[Silent], Any]
    told: bool = True


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*")
            if file.is_file() and ".damaged" not in str(file)}


def data_set(world: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Case:
    """Create a downloaded data set; return it with the function that uses it.

    The function verifies the data set, and downloads and packs it again if it is damaged.
    """
    contract = Images.model_validate(datasets.document(world))
    for variable in ("DEBIAN", "SNAPSHOT", "PYPI"):
        monkeypatch.setattr(sources, variable, f"{world.as_uri()}/none/")
    monkeypatch.setenv("PATH", str(world))
    home = paths.cache("data", "small")

    def use(told: Silent) -> Any:
        if home.exists():
            told.warnings += cache.verify(contract, reporter=told, workers=1)
        cache.get(contract, offline=False, reporter=told)
        assert cache.verify(contract, reporter=Silent(), workers=1) == []
        return contents(home / "packed") | contents(home / "raw")

    use(Silent())
    return Case(home / name, use)


def packages(world: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> Case:
    """Create the wheelhouse of an image with one wheel and one Debian package."""
    wheel = wheels.write(world / "files", "one")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (world / "one").mkdir()
    page = f'<a href="../files/{wheel.name}#sha256={digest}">one</a>'
    (world / "one/index.html").write_text(page)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", world.as_uri())
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(variable, raising=False)
    deb = world / "files/x.deb"
    deb.write_bytes(b"package" * 100)
    package = Item(
        "debs", "x.deb", hashlib.sha256(deb.read_bytes()).hexdigest(), None, (deb.as_uri(),)
    )
    monkeypatch.setattr(wheelhouse, "_debs", lambda image: [package])
    shutil.copytree(TINY, world / "tiny")
    (world / "tiny/requirements.lock").write_text(f"one==1.0 --hash=sha256:{digest}\n")
    image = definition.read(world / "tiny/image.yaml")

    def use(told: Silent) -> Any:
        items = wheelhouse.fetch(image, offline=False, reporter=told)
        with wheelhouse.view(image, items) as folder:
            return contents(folder)

    use(Silent())
    chosen = next(paths.cache("wheelhouse/resolved").glob("*.json"))
    return Case({
        "choice": chosen, "deb": package.kept,
        "wheel": paths.cache("wheelhouse/files", digest, wheel.name),
    }[what], use)


def base_image(world: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> Case:
    """Put the base image of an image into the cache, as a download does."""
    def pull(reference: str, architecture: Architecture, destination: Path) -> None:
        destination.write_bytes(b"base image" * 100)

    monkeypatch.setattr(bases, "unreachable", lambda image: None)
    wanted = definition.read(TINY / "image.yaml").base
    assert wanted is not None

    def use(told: Silent) -> Any:
        found = bases.resolve(wanted, "amd64", given=None, offline=False, pull=pull, suffix=".sif",
                              reporter=told)
        return found, Path(found.reference).read_bytes()

    found, _ = use(Silent())
    return Case(Path(found.reference).with_suffix(suffix), use)


def sif(world: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> Case:
    """Create a built SIF and its record."""
    engine = sifs.engine(monkeypatch)

    def use(told: Silent) -> Any:
        built = engine.build(sifs.TINY, base=None, offline=True, reporter=told)
        assert engine.find(sifs.TINY) == built
        return built.image, Path(built.reference).read_bytes()

    image, _ = use(Silent())
    return Case(Path(image.reference).with_suffix(suffix), use)


def environment(world: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Case:
    """Create an environment of the host engine."""
    wheels.write(world / "view/wheels", "one", script=True)
    monkeypatch.setattr(wheelhouse, "fetch", lambda *words, **more: [])
    monkeypatch.setattr(wheelhouse, "view", lambda *words: nullcontext(world / "view"))

    def use(told: Silent) -> Any:
        built = Host().build(sifs.TINY, base=None, offline=True, reporter=told)
        return contents(Path(built.reference))

    use(Silent())
    place = Path(Host().planned(sifs.TINY).reference)
    return Case(next(place.glob(name)), use)


def look_inside(world: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Case:
    """Store the inventory of an image in the cache, and return the case with its path.

    The function in the case reads the inventory, or collects it again if the file is damaged.
    """
    built = BuiltImage("tiny", "apptainer", "/tiny.sif", "sha256:0", "ab" * 32, 1)
    found = image_contents.Inventory(
        image="tiny", engine="apptainer", digest="sha256:0", release={},
        python_version="3.11", entry_point="", environment={}, labels={}, debian=(), python=(),
        files={}, hidden=(),
    )
    monkeypatch.setattr(image_contents, "collect", lambda engine, built: found)
    use: Callable[[Silent], Any] = lambda told: image_contents.of(None, built)  # type: ignore[arg-type]  # noqa: E731
    use(Silent())
    return Case(image_contents.place(built), use, told=False)


def lock_file(world: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Case:
    """Create the lock file of an item in the cache."""
    place = paths.cache("host", "x")

    def use(told: Silent) -> Any:
        with locks.making(place, told):
            return True

    use(Silent())
    return Case(locks.path_of(place), use, told=False)


CASES: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch, str], Case], str]] = {
    "raw data": (data_set, "raw/train-labels"),
    "shard": (data_set, "packed/train-00000.tar"),
    "index": (data_set, "packed/train-00000.idx"),
    "description of a data set": (data_set, "packed/dataset.json"),
    "choice of wheels": (packages, "choice"),
    "wheel": (packages, "wheel"),
    "Debian package": (packages, "deb"),
    "base": (base_image, ".sif"),
    "record of a base": (base_image, ".json"),
    "SIF": (sif, ".sif"),
    "record of a SIF": (sif, ".apptainer.json"),
    "inventory": (look_inside, ""),
    "module of an environment": (environment, "lib/python*/site-packages/one/module0.py"),
    "bytecode of an environment": (
        environment, "lib/python*/site-packages/one/__pycache__/module0*.pyc"
    ),
    "script of an environment": (environment, "bin/one"),
    "list of an environment": (environment, ".complete"),
    "lock": (lock_file, ""),
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", CASES)
def test_what_is_damaged_is_named_and_had_again(
    kind: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, name = CASES[kind]
    case = make(tmp_path / "world", monkeypatch, name)
    before = case.use(Silent())
    spoil(case.file, how)
    told = Silent()
    assert case.use(told) == before
    if case.told and how != "removed":
        said = "\n".join(told.warnings)
        assert case.file.name in said or str(case.file.parent) in said
    again = Silent()
    assert case.use(again) == before
    assert again.warnings == []
