"""Items of the cache that are in use stay, and only the others are removed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from trimaran import cli, locks, paths
from trimaran.cli import cache as commands
from trimaran.engines import apptainer, host, store
from trimaran.engines.podman import Podman
from trimaran.errors import BuildError, TrimaranError
from trimaran.images import content_hash, definition
from trimaran.images.bases import assembled_at
from trimaran.inventory import cache_usage
from trimaran.provenance import digests
from trimaran.reporting import Silent

CONTAINERS = paths.repository() / "containers"
YESTERDAY = time.time() - locks.STALE_SECONDS - 60


@pytest.fixture(autouse=True)
def image(checkout: Path) -> definition.Image:
    """Return the only image of the test's checkout; loading all images would take long."""
    (checkout / "containers/frameworks").mkdir()
    for part in ("frameworks/torch-cpu", "build", "selftests"):
        (checkout / "containers" / part).symlink_to(CONTAINERS / part)
    return definition.load("torch-cpu")


def sif(inputs: str, content: str, *, engine: str = "apptainer", digest: str = "sha256:0") -> Path:
    """Put an image of `torch-cpu` into the cache; return its record."""
    folder = paths.cache("images")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"torch-cpu-{inputs}.sif"
    file.write_bytes(b"sif" * 100)
    reference = str(file) if engine == "apptainer" else f"localhost/torch-cpu:{inputs}"
    store.save(store.Record(
        name="torch-cpu", engine=engine, reference=reference, digest=digest, inputs=inputs,
        size=300, content=content, built="2026-11-22T10:00:00Z", base_name="debian",
        base_digest="sha256:1",
    ))
    (folder / f"torch-cpu-{inputs}.{engine}.inventory.json.gz").touch()
    return folder / f"torch-cpu-{inputs}.{engine}.json"


def put(*parts: str, old: bool = False) -> Path:
    path = paths.cache(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 1000)
    if old:
        os.utime(path, (YESTERDAY, YESTERDAY))
    return path


def states() -> dict[str, str]:
    return {holding.name: holding.state for holding in cache_usage.find()}


def prune(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, ["cache", "prune", *words])
    if isinstance(done.exception, TrimaranError):
        return int(done.exception.exit_code), f"{done.exception} {done.exception.hint}"
    return done.exit_code, done.output


def test_an_empty_cache_has_nothing_and_nothing_to_remove() -> None:
    assert cache_usage.find() == []
    status, said = prune()
    assert status == 0
    assert said.startswith("nothing to remove")


def test_images_of_older_definitions_go_with_all_their_files_and_others_stay(
    image: definition.Image,
) -> None:
    sif("111111111111", content_hash.content_of(image))
    sif("222222222222", "f" * 64)
    assert states() == {"torch-cpu-111111111111": "in use", "torch-cpu-222222222222": "superseded"}
    assert prune("--yes")[0] == 0
    assert {path.name.split(".")[0] for path in paths.cache("images").iterdir()} == {
        "torch-cpu-111111111111"
    }
    assert len(list(paths.cache("images").iterdir())) == 3


def test_what_was_published_stays_whatever_the_definition_has_become(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digest = "sha256:" + "a" * 64
    sif("333333333333", "f" * 64, digest=digest)
    entry = digests.Publication(
        image="torch-cpu", form="sif", reference="host.example/team/torch-cpu:1", digest=digest,
        manifest=digest, size=300, content="f" * 64,
    )
    monkeypatch.setattr(digests, "known", lambda: (entry,))
    assert states() == {"torch-cpu-333333333333": "in use"}


def test_a_cache_behind_a_link_keeps_its_images(
    image: definition.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = sif("111111111111", content_hash.content_of(image))
    os.utime(record.with_name("torch-cpu-111111111111.sif"), (YESTERDAY, YESTERDAY))
    (tmp_path / "link").symlink_to(paths.cache())
    monkeypatch.setenv("TRIMARAN_CACHE", str(tmp_path / "link"))
    assert states() == {"torch-cpu-111111111111": "in use"}


def test_what_a_killed_build_left_goes_after_a_day(tmp_path: Path) -> None:
    scratch = tmp_path / f"{apptainer.SCRATCH}abc"
    scratch.mkdir()
    (scratch / "rootfs").write_bytes(b"x" * 7000)
    paths.cache("images", "part-a").mkdir(parents=True)
    paths.cache("images", "part-a", "tmp").symlink_to(scratch)
    put("images", "torch-cpu-444444444444.sif")
    put("images", "torch-cpu-555555555555.sif", old=True)
    for name in ("images/part-a", "wheelhouse/view-b", "bases/pull-c"):
        put(f"{name}/file")
        os.utime(paths.cache(name), (YESTERDAY, YESTERDAY))
    put("images", "part-new", "file")
    put("logs", "apptainer-torch-cpu-444444444444.log")
    put("logs", "apptainer-torch-cpu-555555555555.log", old=True)
    found = {name: state for name, state in states().items() if state == "left over"}
    assert set(found) == {
        "torch-cpu-555555555555.sif", "part-a", "view-b", "pull-c",
        "apptainer-torch-cpu-555555555555.log",
    }
    [part] = [holding for holding in cache_usage.find() if holding.name == "part-a"]
    assert part.size > 8000
    assert prune("--yes")[0] == 0
    assert not scratch.exists()
    assert {path.name for path in paths.cache("images").iterdir()} == {
        "torch-cpu-444444444444.sif", "part-new",
    }


def test_the_next_build_clears_away_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPTAINER_TMPDIR", str(tmp_path))
    left, scratch = paths.cache("images", "part-a"), tmp_path / f"{apptainer.SCRATCH}abc"
    for folder in (left, scratch):
        folder.mkdir(parents=True)
    (left / "tmp").symlink_to(scratch)
    os.utime(left, (YESTERDAY, YESTERDAY))
    with apptainer.workplace(0) as place:
        assert place.is_dir()
        assert not left.exists()
        assert not scratch.exists()
    assert not place.exists()


def test_environments_packages_bases_and_data(image: definition.Image) -> None:
    current = Path(host.Host().planned(image).reference)
    put("host", current.name, "bin", "python")
    put("host", "torch-cpu-000000000000", "bin", "python")
    locked = (image.folder / "requirements.lock").read_text().partition("sha256:")[2][:64]
    put("wheelhouse", "files", locked, "a.whl")
    put("wheelhouse", "files", "0" * 64, "b.whl")
    assert image.base is not None
    assert image.base.suite is not None
    suite, digest = assembled_at(image.base.suite, "amd64").name, str(image.base.digest)[7:19]
    for name in (suite, f"{suite}.damaged", f"debian-x-{digest}.sif", "debian-sarge.docker.tar"):
        put("bases", name)
    put("data", "photographs", "packed", "train.tar")
    for holding in cache_usage.find():
        assert holding.size == 1000, holding
    assert prune("--yes")[0] == 0
    left = {path.relative_to(paths.cache()) for path in paths.cache().glob("*/*")}
    assert {str(path) for path in left} == {
        f"host/{current.name}", "wheelhouse/files", f"bases/{suite}",
        f"bases/debian-x-{digest}.sif", "data/photographs",
    }
    assert [path.name for path in paths.cache("wheelhouse/files").iterdir()] == [locked]


def test_what_a_process_uses_is_said_and_stays() -> None:
    put("host", "torch-cpu-000000000000", "bin", "python")
    place = paths.cache("host", "torch-cpu-000000000000")
    record = sif("222222222222", "f" * 64)
    image = record.with_name("torch-cpu-222222222222.sif")
    with locks.using(place, Silent()), locks.using(image, Silent()):
        assert set(states().values()) == {"running"}
        status, said = prune("--yes")
        assert (status, place.exists(), record.exists()) == (0, True, True)
        for name in (place.name, "torch-cpu-222222222222"):
            assert f"{name} stays" in said
    assert prune("--yes")[0] == 0
    assert (place.exists(), record.exists(), image.exists()) == (False, False, False)


def test_without_a_yes_nothing_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    record = sif("222222222222", "f" * 64)
    status, said = prune()
    assert (status, record.exists()) == (2, True)
    assert "trimaran cache prune --yes" in said
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(commands, "sys", SimpleNamespace(stdin=terminal))
    done = CliRunner().invoke(cli.app, ["cache", "prune"], input="n\n")
    assert (done.exit_code, record.exists()) == (0, True)
    assert "torch-cpu-222222222222" in done.output
    assert "nothing removed" in done.output
    assert CliRunner().invoke(cli.app, ["cache", "prune"], input="y\n").exit_code == 0
    assert not record.exists()


def test_an_image_that_podman_holds_on_to_stays_and_the_others_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Podman, record: store.Record) -> None:
        raise BuildError(f"{record.reference} is in use")

    monkeypatch.setattr(Podman, "__init__", lambda self: None)
    monkeypatch.setattr(Podman, "remove", refuse)
    kept = sif("222222222222", "f" * 64, engine="podman")
    gone = sif("333333333333", "f" * 64)
    assert prune("--yes")[0] == 3
    assert (kept.exists(), gone.exists()) == (True, False)


def test_what_the_system_holds_on_to_stays_and_the_others_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(cache_usage, "remove_folder", refuse)
    put("host", "torch-cpu-000000000000", "bin", "python")
    put("bases", "debian-sarge.docker.tar")
    status, said = prune("--yes")
    assert status == 3
    assert "removed 0.0 GB" in said
    assert [path.name for path in paths.cache("host").iterdir()] == ["torch-cpu-000000000000"]
    assert list(paths.cache("bases").iterdir()) == []


def test_the_list_as_json_has_bytes_and_days() -> None:
    sif("222222222222", "f" * 64)
    done = CliRunner().invoke(cli.app, ["cache", "list", "--json"])
    assert json.loads(done.output) == [{
        "name": "torch-cpu-222222222222", "kind": "SIF", "size": 300, "state": "superseded",
        "made": "2026-11-22",
    }]
