"""Tests of which images may be published: builds from the definition, and known images."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tinyapp
from refusals import refused
from trimaran.engines import store
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.podman import Podman
from trimaran.engines.store import Record
from trimaran.errors import BuildError, RunError
from trimaran.images import bases, content_hash, definition
from trimaran.images.bases import Base
from trimaran.images.definition import Image
from trimaran.provenance import digests, signing
from trimaran.publishing import origin
from trimaran.reporting import Silent

APPTAINER = Apptainer("/opt/apptainer/bin/apptainer")
KEY = signing.Key(0, "A" * 40, "Release")
MY_BASE = Base("localimage", "/home/me/my.sif", "my.sif", "sha256:" + "8" * 64)
ASSEMBLED = Base(
    "docker-archive", "debian.tar", f"{bases.ASSEMBLED.format(suite='bookworm')}2026-11-28",
    "sha256:" + "9" * 64)


@pytest.fixture(autouse=True)
def project(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with the small app and its images; a signature of a SIF counts as none."""
    tinyapp.write(checkout, tmp_path / "sources")

    def refuse(sif: Path, accepted: object) -> None:
        raise RunError(f"{sif} is not signed", code="signature-missing")

    monkeypatch.setattr(signing, "require", refuse)
    return checkout


def framework() -> Image:
    return definition.on(definition.load("tiny"), "amd64")


def app() -> Image:
    return definition.on(definition.load(tinyapp.APP_IMAGE), "amd64")


def pinned() -> Base:
    base = framework().base
    assert base is not None
    return Base("docker", base.image, base.image, str(base.digest))


def made(image: Image, base: Base, below: Record | None = None) -> Record:
    """Record an image as built here on `base`, or on the framework image `below`."""
    content = content_hash.content_of(image)
    under = base if below is None else Base("", below.reference, below.name, below.digest)
    inputs = store.inputs_of(content, below.inputs if below else base.digest)
    record = Record(
        name=image.name, engine="apptainer", reference=f"{image.name}.sif", size=1, content=content,
        digest=f"sha256:{hashlib.sha256(inputs.encode()).hexdigest()}", inputs=inputs,
        built="2026-11-28T00:00:00Z", base_name=under.name, base_digest=under.digest,
        architecture=image.architecture)
    store.save(record)
    return record


def pulled(image: Image) -> Record:
    record = store.pulled(
        image.name, "apptainer", f"{image.name}.sif", "sha256:" + "7" * 64,
        content=content_hash.content_of(image), size=1, architecture=image.architecture,
        origin=f"host.example/team/{image.name}@sha256:{'6' * 64}")
    assert isinstance(record, Record)
    return record


def publish(image: Image, record: Record, **other: str) -> None:
    """List an image in the project's file of digests."""
    fields = {"content": record.content, "digest": record.digest, "form": "sif", **other}
    digests.record(digests.Publication.model_validate({
        "image": image.name, "architecture": "amd64", "size": 1,
        "reference": f"host.example/team/{image.name}:{record.digest[7:19]}",
        "manifest": "sha256:" + "b" * 64, **fields,
    }), digests.project_path())


@pytest.mark.parametrize("base", [pinned, lambda: ASSEMBLED], ids=["pinned", "assembled"])
def test_a_build_from_the_definition_is_accepted(base: Callable[[], Base]) -> None:
    below = made(framework(), base())
    origin.require(framework(), APPTAINER, below, None)
    above = made(app(), base(), below)
    origin.require(app(), APPTAINER, above, None)
    store.save(replace(below, digest="sha256:" + "5" * 64))  # it was signed
    origin.require(app(), APPTAINER, above, None)


def test_an_image_on_another_base_is_refused_and_so_is_what_was_built_on_it() -> None:
    below = made(framework(), MY_BASE)
    above = made(app(), MY_BASE, below)
    for image, record in ((framework(), below), (app(), above)):
        for key in (None, KEY):
            with refused("origin-unknown", image.name, record.reference, kind=BuildError):
                origin.require(image, APPTAINER, record, key)


def test_a_pulled_image_is_accepted_only_if_the_project_has_published_it() -> None:
    image = framework()
    record = pulled(image)
    with refused("origin-unknown", record.origin, kind=BuildError):
        origin.require(image, APPTAINER, record, None)
    publish(image, record, content="0" * 64)
    with refused("origin-unknown", kind=BuildError):
        origin.require(image, APPTAINER, record, None)
    publish(image, record)
    origin.require(image, APPTAINER, record, None)


def test_a_pulled_image_counts_as_pulled_whatever_its_inputs() -> None:
    record = replace(made(framework(), pinned()), origin="host.example/x/tiny@sha256:1")
    with refused("origin-unknown", record.origin, kind=BuildError):
        origin.require(framework(), APPTAINER, record, None)


def test_an_app_image_may_be_built_on_a_published_framework_image() -> None:
    below = pulled(framework())
    above = made(app(), MY_BASE, below)
    with refused("origin-unknown", app().name, kind=BuildError):
        origin.require(app(), APPTAINER, above, None)
    publish(framework(), below)
    origin.require(app(), APPTAINER, above, None)


def test_a_pulled_sif_with_a_signature_of_the_publisher_is_accepted(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    record = pulled(framework())
    with refused("signature-missing", record.reference, kind=RunError):
        origin.require(framework(), APPTAINER, record, KEY)
    accepted: list[object] = []
    monkeypatch.setattr(signing, "require", lambda sif, keys: accepted.append((str(sif), keys)))
    origin.require(framework(), APPTAINER, record, KEY)
    assert accepted == [(record.reference, [[KEY.fingerprint]])]


def test_a_signature_says_nothing_about_an_oci_image() -> None:
    record = pulled(framework())
    engine = object.__new__(Podman)
    with refused("origin-unknown", kind=BuildError):
        origin.require(framework(), engine, record, KEY)


def test_an_image_of_a_registry_must_be_one_that_the_project_has_published() -> None:
    record = pulled(framework())
    with refused("origin-unknown", "host.example/x", record.digest, kind=BuildError):
        origin.require_published(framework(), APPTAINER, record.digest, "host.example/x")
    publish(framework(), record, form="oci")
    with refused("origin-unknown", kind=BuildError):
        origin.require_published(framework(), APPTAINER, record.digest, "host.example/x")
    publish(framework(), record)
    origin.require_published(framework(), APPTAINER, record.digest, "host.example/x")


def test_an_assembled_base_image_has_the_name_that_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mmdebstrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(bases, "KEYRING", program)
    monkeypatch.setattr(bases.process, "follow", lambda *_, **__: None)
    monkeypatch.setattr(bases, "fill_holes", lambda sparse, layer: layer.write_bytes(b""))
    base = bases.assemble("bookworm", "amd64", tmp_path / "base.tar", Silent())
    assert bases.is_assembled(base.name, "bookworm")
