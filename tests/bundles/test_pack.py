"""Test the content of the bundle of a small recipe, and its unpacking."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from pydantic import ValidationError

import bundles
from bundles import NAME, SIF, image
from refusals import refused
from trimaran import cli, paths
from trimaran.bundles import archive, pack, unpack
from trimaran.data import cache, contracts, dataset_json
from trimaran.engines.host import Host
from trimaran.reporting import Silent
from trimaran.run import run_directory
from trimaran.run.request import Request

ALWAYS = ["README.txt", "bundle.json", "run.sh", "recipe.yaml", "app.yaml", "target.yaml",
          "contract.yaml", "data.sha256", "data/dataset.json"]
SHARDS = ["data/train-00000.tar", "data/train-00000.idx", "data/test-00000.tar",
          "data/test-00000.idx"]


@pytest.fixture
def request_(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """Return a request to run a recipe whose data set is small and whose image is built."""
    return bundles.request(checkout, tmp_path, monkeypatch)


def bundled(request: Request, file: Path, *, with_data: bool = True) -> pack.Packed:
    return pack.pack(request, file, with_data=with_data, reporter=Silent())


@pytest.mark.parametrize("with_data", [True, False])
def test_a_bundle_holds_what_a_run_needs(
    request_: Request, own_place: Path, with_data: bool
) -> None:
    made = bundled(request_, own_place / "b.tar", with_data=with_data)
    with tarfile.open(made.path) as tar:
        names = [name.removeprefix("resnet-imagenet-cpu-smoke/") for name in tar.getnames()]
    shards = SHARDS if with_data else []
    assert names == ["SHA256SUMS", *ALWAYS, *shards, "image.sif"]
    assert made.sha256 == hashlib.sha256(made.path.read_bytes()).hexdigest()
    assert unpack.verify(made.path, Silent()) == made.manifest
    assert made.manifest.recipe.changed == {"epochs": 2}
    assert made.manifest.apptainer == "apptainer version 1.4.5"
    folder, _ = unpack.extract(made.path, None, Silent())
    assert folder == own_place / "resnet-imagenet-cpu-smoke"
    assert (folder / "image.sif").read_bytes() == SIF
    packed = cache.folder(contracts.load("small"))
    for sums, of in (("SHA256SUMS", folder), ("data.sha256", packed)):
        subprocess.run(["sha256sum", "--check", "--strict", folder / sums], cwd=of, check=True)
    readme = (folder / "README.txt").read_text()
    assert ("sh run.sh --data DIR   " in readme) is not with_data


def test_the_same_date_gives_the_same_bytes(
    request_: Request, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first = bundled(request_, own_place / "1.tar")
    Path(paths.cache("images", "tiny-0.sif")).touch()
    second = bundled(request_, own_place / "2.tar")
    assert first.sha256 == second.sha256
    assert first.manifest.created == "2023-11-14T22:13:20Z"


def test_nothing_is_overwritten(request_: Request, own_place: Path) -> None:
    made = bundled(request_, own_place / "b.tar")
    with refused("file-exists", own_place / "b.tar"):
        bundled(request_, own_place / "b.tar")
    unpack.extract(made.path, own_place / "out", Silent())
    for target in (own_place / "out", made.path):
        with refused("file-exists", target):
            unpack.extract(made.path, target, Silent())
    with refused("file-missing", own_place / "absent"):
        unpack.extract(made.path, own_place / "absent/out", Silent())
    assert {path.name for path in own_place.iterdir()} == {"b.tar", "out"}


def test_a_damaged_bundle_leaves_nothing(request_: Request, own_place: Path) -> None:
    made = bundled(request_, own_place / "b.tar")
    content = bytearray(made.path.read_bytes())
    content[content.index(SIF)] ^= 1
    made.path.write_bytes(content)
    for read in (unpack.verify, lambda file, told: unpack.extract(file, None, told)):
        with refused("bundle-damaged", made.path, "image.sif"):
            read(made.path, Silent())
    assert [path.name for path in own_place.iterdir()] == ["b.tar"]


def test_an_image_that_changed_in_the_cache_is_not_packed(
    request_: Request, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimaran.bundles.pack.prepare_image", spoil(request_))
    with refused("file-changed", "tiny-0.sif"):
        bundled(request_, own_place / "b.tar")
    assert list(own_place.iterdir()) == []


def spoil(request: Request):
    """Return a stand-in for `prepare_image` that damages the image file after finding the image."""
    def prepare(*_: object):
        built = request.engine.find(image())
        assert built is not None
        Path(built.reference).write_bytes(SIF[::-1])
        return built

    return prepare


def test_another_engine_makes_no_bundle(request_: Request, own_place: Path) -> None:
    with refused("engine-unsuitable", "host"):
        bundled(Request(request_.recipe, Host(), {}), own_place / "b.tar")


def test_an_import_makes_image_and_data_those_of_run(
    request_: Request, own_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bundled(request_, own_place / "b.tar")
    folder, manifest = unpack.extract(made.path, None, Silent())
    monkeypatch.setenv("TRIMARAN_CACHE", str(tmp_path / "other"))
    shutil.rmtree(tmp_path / "sources")
    told = Silent()
    for _ in range(2):  # a second time changes nothing
        unpack.take_in(folder, manifest, told)
    assert told.warnings == []
    found = request_.engine.find(image())
    assert found is not None
    assert found.digest == manifest.image.digest
    contract = contracts.load("small")
    place = cache.get(contract, offline=True, reporter=told)
    assert dataset_json.verify_folder(contract, place, records=True, reporter=told) == []
    definition = paths.repository() / "containers/frameworks/tiny/selftest.py"
    definition.write_text("another")
    unpack.take_in(folder, manifest, told)
    assert "this checkout defines tiny differently" in told.warnings[0]


def test_a_bundle_of_another_version_is_said(request_: Request, own_place: Path) -> None:
    made = bundled(request_, own_place / "b.tar")
    text = made.manifest.model_dump_json(by_alias=True).replace('"schema":1', '"schema":2')
    other = own_place / "other.tar"
    archive.write(other, "small", [archive.text_member("bundle.json", text, 0)], Silent())
    with refused("bundle-invalid", other, "bundle.json"):
        unpack.verify(other, Silent())
    third = own_place / "third.tar"
    archive.write(third, "small", [archive.text_member("a", text, 0)], Silent())
    with refused("bundle-invalid", third, "bundle.json"):
        unpack.verify(third, Silent())


def test_the_command_line_says_what_happened_and_exits_by_it(
    request_: Request, own_place: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def trimaran(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["trimaran", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return (int(left.value.code or 0), *capsys.readouterr())

    made = bundled(request_, own_place / "b.tar")
    code, said, _ = trimaran("unbundle", "b.tar", "--verify")
    assert code == 0
    assert f"{NAME}, tiny {made.manifest.image.digest}" in said
    assert trimaran("unbundle", "b.tar", "--verify", "--to", "x")[0] == 2
    made.path.write_bytes(made.path.read_bytes()[:20_000])
    code, _, said = trimaran("unbundle", "b.tar")
    assert code == 4
    assert "[bundle-damaged]" in said
    assert "b.tar" in said
    assert [path.name for path in own_place.iterdir()] == ["b.tar"]


def test_run_json_with_a_foreign_name_of_a_folder_is_read(own_place: Path) -> None:
    evidence = next((paths.repository() / "site/results").glob("resnet-imagenet/*/*.json"), None)
    assert evidence is not None
    record = json.loads(evidence.read_text())["run"]
    record["image"]["reference"] = "FOLDER"
    record["data"]["path"] = "/data"  # of version 1, which has one data set
    record["host"]["hostname"] = "node"
    record["command"] = {"argv": [], "env": {}, "shell": ""}
    content = json.dumps(record).encode().replace(b"FOLDER", b"/caf\xe9")
    (own_place / "run.json").write_bytes(content)
    assert run_directory.load(own_place).image.reference == "/caf\N{REPLACEMENT CHARACTER}"


def test_the_image_in_a_manifest_keeps_its_keys() -> None:
    old = {
        "name": "tiny", "engine": "apptainer", "digest": "sha256:" + "1" * 64, "content": "c",
        "inputs": "a" * 64, "built": "2026-01-01T00:00:00Z", "base_name": "debian",
        "base_digest": "sha256:1", "size": 5, "origin": None, "signature": None,
    }
    new = pack.BundledImage.model_validate(old).model_dump(mode="json")
    assert new == {**old, "architecture": "amd64"}
    for wrong in ({"reference": "/tiny.sif"}, {"digest": "sha256:1"}, {"name": "../tiny"}):
        with pytest.raises(ValidationError):
            pack.BundledImage.model_validate({**old, **wrong})
