"""Real buildah and podman: images have the same packages as with Apptainer, and are isolated."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from commandline import command
from trimaran.engines import BuiltImage, store
from trimaran.engines.podman import Podman
from trimaran.images import definition, lock
from trimaran.launch.specification import Mount
from trimaran.reporting import Silent

pytestmark = [pytest.mark.engine("podman"), pytest.mark.timeout(280)]


@pytest.fixture(scope="module")
def built(tiny: definition.Image, engine_cache: Path) -> Iterator[BuiltImage]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))
        yield Podman().build(tiny, base=None, offline=False, reporter=Silent())


@pytest.fixture(autouse=True)
def same_cache(own_place: Path, engine_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))


def run(built: BuiltImage, script: str, *mounts: Mount, **env: str) -> str:
    workdir = "/out" if mounts else "/"
    exact = command(Podman(), built, ["-c", script], mounts, env, workdir)
    done = subprocess.run(
        exact.argv, env={**exact.env, "HOSTVAR": "1"}, capture_output=True, text=True,
        check=False, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_image_has_exactly_the_locked_debian_packages(
    built: BuiltImage, tiny: definition.Image
) -> None:
    query = ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"]
    listing = run(built, f"import subprocess; subprocess.run({query})")
    found = dict(line.split(" ") for line in listing.splitlines())
    locked = {p.name: p.version for p in lock.read_debian(tiny.folder / "debian.lock")}
    assert {name: found.get(name) for name in locked} == locked


def test_a_built_image_is_found(built: BuiltImage, tiny: definition.Image) -> None:
    assert Podman().find(tiny) == built


def test_environment_and_writing(built: BuiltImage, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "out").mkdir()
    script = (
        "import os; print(ascii(os.environ['ODD']), 'HOSTVAR' in os.environ)\n"
        "open('/out/new', 'w').close()\n"
        "for path in ('/data/new', '/opt/new'):\n"
        "    try: open(path, 'w'); print('written')\n"
        "    except OSError as error: print(error.errno)\n"
    )
    value = "a,b 'c' \"d\"\ne $HOME"
    printed = run(
        built, script, Mount(str(tmp_path / "data"), "/data"),
        Mount(str(tmp_path / "out"), "/out", writable=True), ODD=value,
    )
    assert printed.splitlines() == [f"{value!a} False", "30", "30"]
    assert (tmp_path / "out/new").exists()


def test_an_image_is_removed_from_the_storage_if_it_still_is_that_one(
    tiny: definition.Image, built: BuiltImage
) -> None:
    podman = Podman()
    [record] = store.records(tiny, "podman")
    podman.remove(replace(record, digest="sha256:" + "0" * 64))
    assert podman.find(tiny) == built
    podman.remove(record)
    assert podman.find(tiny) is None
