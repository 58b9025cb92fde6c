"""Tests of the SBOM: valid by CycloneDX's validator, complete, reproducible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.validation.json import JsonStrictValidator

from trimaran import paths
from trimaran.engines.image_contents import DebianPackage, Inventory, PythonPackage
from trimaran.images import definition, lock
from trimaran.provenance import sbom

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")
FOUND = Inventory(
    image="tiny", engine="apptainer", digest="sha256:" + "a" * 64,
    release={"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian 12"},
    python_version="3.11.2", entry_point="python", environment={}, files={}, hidden=(),
    labels={
        "org.opencontainers.image.created": "2026-11-21T10:00:00Z",
        "org.opencontainers.image.version": "1", "org.opencontainers.image.licenses": "MIT",
        "org.opencontainers.image.base.digest": "sha256:" + "b" * 64,
    },
    debian=(
        DebianPackage(name="libgmp10", version="2:6.2.1+dfsg1-1.1", architecture="amd64",
                      source="gmp", licences=("LGPL-3+", "GPL-2+ or LGPL-3+", "Expat", "MIT")),
        DebianPackage(name="libc6", version="2.36-9+deb12u14", architecture="amd64",
                      source="glibc", licences=()),
    ),
    python=(
        PythonPackage(name="Some_Package", version="2.13.0+cpu", installer="pip",
                      licences=("Apache-2.0 AND MIT",)),
        PythonPackage(name="six", version="1.17.0", installer="pip", licences=("MIT License",)),
    ),
)


@pytest.fixture(autouse=True)
def no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)


def components(text: str) -> dict[str, Any]:
    return {part["name"]: part for part in json.loads(text)["components"]}


def test_it_is_valid() -> None:
    text = sbom.text(FOUND, {})
    assert JsonStrictValidator(sbom.VERSION).validate_str(text) is None
    broken = text.replace('"type": "container"', '"type": "ship"')
    assert JsonStrictValidator(sbom.VERSION).validate_str(broken) is not None


def test_it_names_every_package_with_purl_version_and_licences() -> None:
    found = components(sbom.text(FOUND, {}))
    assert set(found) == {"debian", "libgmp10", "libc6", "some-package", "six"}
    gmp = found["libgmp10"]
    assert gmp["version"] == "2:6.2.1+dfsg1-1.1"
    assert gmp["purl"] == (
        "pkg:deb/debian/libgmp10@2:6.2.1%2Bdfsg1-1.1?arch=amd64&distro=debian-12"
    )
    stated = [entry["license"].get("id") or entry["license"]["name"] for entry in gmp["licenses"]]
    assert sorted(stated) == ["GPL-2+ or LGPL-3+", "LGPL-3.0-or-later", "MIT"]
    assert found["some-package"]["purl"] == "pkg:pypi/some-package@2.13.0%2Bcpu"
    assert found["some-package"]["licenses"][0]["expression"] == "Apache-2.0 AND MIT"
    assert found["six"]["licenses"][0]["license"]["id"] == "MIT"
    assert found["libc6"]["licenses"][0]["license"]["acknowledgement"] == "concluded"


def test_a_licence_is_declared_found_or_settled() -> None:
    gmp, libc = FOUND.debian
    mentioned = libc.model_copy(update={"name": "other", "mentioned": ("GPL-2", "LGPL")})
    by_hand = libc.model_copy(update={"name": "libopenmpi3", "mentioned": ("LGPL-2",)})
    image = FOUND.model_copy(update={"debian": (gmp, mentioned, by_hand)})
    text = sbom.text(image, {})
    assert JsonStrictValidator(sbom.VERSION).validate_str(text) is None
    found = components(text)
    assert {entry["license"]["acknowledgement"] for entry in found["libgmp10"]["licenses"]} == {
        "declared"
    }
    assert "licenses" not in found["other"]
    (first, second) = found["other"]["evidence"]["licenses"]
    assert (first["license"], second["license"]) == ({"id": "GPL-2.0-only"}, {"name": "LGPL"})
    (settled,) = found["libopenmpi3"]["licenses"]
    assert settled["license"] == {"id": "BSD-3-Clause-Open-MPI", "acknowledgement": "concluded"}
    assert found["libopenmpi3"]["evidence"]["licenses"][0]["license"]["id"] == "LGPL-2.0-only"
    reasons = {entry["name"]: entry["value"] for entry in found["libopenmpi3"]["properties"]}
    assert "ptmalloc2" in reasons["trimaran:licence:reason"]


def test_hashes_are_those_of_the_locks() -> None:
    hashes = dict(sbom.locked_hashes(TINY))
    locked = {p.name: p for p in lock.read_debian(TINY.folder / "debian.lock")}["libc6"]
    assert hashes["debian", "libc6", locked.version] == locked.sha256
    hashes["python", "some-package", "2.13+cpu"] = "c" * 64
    found = components(sbom.text(FOUND, hashes))
    assert found["libc6"]["hashes"] == [{"alg": "SHA-256", "content": locked.sha256}]
    assert found["some-package"]["hashes"] == [{"alg": "SHA-256", "content": "c" * 64}]
    assert "hashes" not in found["libgmp10"]


def test_equal_content_gives_equal_text_and_other_content_another_number() -> None:
    first = sbom.text(FOUND, {})
    assert sbom.text(FOUND.model_copy(), {}) == first
    other = sbom.text(FOUND.model_copy(update={"digest": "sha256:" + "c" * 64}), {})
    numbers = {json.loads(text)["serialNumber"] for text in (first, other)}
    assert len(numbers) == 2


def test_the_date_is_that_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(sbom.text(FOUND, {}))["metadata"]["timestamp"].startswith("2026-11-21T10:00")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert json.loads(sbom.text(FOUND, {}))["metadata"]["timestamp"].startswith("1970-01-01T00:00")
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    dateless = FOUND.model_copy(update={"labels": {}})
    assert JsonStrictValidator(sbom.VERSION).validate_str(sbom.text(dateless, {})) is None


def test_it_holds_no_path_of_this_machine() -> None:
    text = sbom.text(FOUND, sbom.locked_hashes(TINY))
    assert str(paths.repository()) not in text


def test_the_bill_of_a_lock_is_valid_and_names_what_is_locked() -> None:
    image = definition.load("resnet-imagenet-torch-cpu")
    text = sbom.locked(image)
    assert JsonStrictValidator(sbom.VERSION).validate_str(text) is None
    assert text == sbom.locked(image)
    found = components(text)
    locked = {package.name: package for package in sbom.locked_debian(image)}
    assert found["libc6"]["hashes"] == [{"alg": "SHA-256", "content": locked["libc6"].sha256}]
    assert found["torch"]["version"] == sbom.locked_python(image)["torch"]
    assert {"horovod", "mpi4py"} <= set(found)  # one of them is compiled in the first stage
    assert "licenses" not in found["torch"]
