"""Tests of the steps of a publication: what is checked before something is pushed or named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import tinyapp
from harbours import Harbour, digest_of, manifest, serving
from refusals import refused
from trimaran import publishing
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, Form
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import BuildError, RunError, TrimaranError, UsageError
from trimaran.images import content_hash, definition
from trimaran.images.definition import Image
from trimaran.provenance import digests, signing
from trimaran.provenance.digests import Publication
from trimaran.provenance.registry import forms
from trimaran.provenance.registry.api import Client, Repository
from trimaran.reporting import Reporter, Silent
from trimaran.site_file import Site

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("collected_sockets"),
]

KEY = signing.Key(0, "A" * 40, "Release")
DIGEST = "sha256:" + "1" * 64
BOTH: list[Architecture] = ["amd64", "arm64"]


@pytest.fixture
def project(checkout: Path, tmp_path: Path) -> Path:
    """Return a checkout with the small app, its images and its recipe."""
    tinyapp.write(checkout, tmp_path / "sources")
    return checkout


@pytest.fixture
def harbour(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harbour]:
    """Run a registry that has one repository for all images."""
    monkeypatch.setenv("NO_PROXY", "*")
    with serving() as server:
        server.reply["/v2/"] = (200, {}, b"{}")

        def connect(image: Image, *_: object, **__: object) -> Client:
            return Client(Repository(server.host, "fleet/tiny"))

        monkeypatch.setattr(publishing.registry, "connect", connect)
        yield server


def order(
    project: Path, *formats: Form, key: signing.Key | None = None
) -> publishing.Order:
    return publishing.Order("registry.example/fleet", False, formats or ("sif",), key, str,
                            project / "sbom", Site())


def image(name: str = tinyapp.APP_IMAGE) -> Image:
    return definition.load(name)


def have(
    harbour: Harbour, model: Image, form: Form = "sif", *, recorded: bool = True
) -> str:
    """Put an image into the registry, and list it in the project; return its manifest's digest."""
    about = {"for": [model.name, form, model.architecture]}
    text = json.dumps({**json.loads(manifest()), **about}).encode()
    tag = forms.names(form, model).content
    harbour.have(tag, text)
    if recorded:
        digests.record(Publication(
            image=model.name, form=form, architecture=model.architecture, size=1,
            reference=f"localhost/fleet/tiny:{tag}", digest=DIGEST, manifest=digest_of(text),
            content=content_hash.content_of(model),
        ), digests.project_path())
    return digest_of(text)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the records of `have` count for the registry of the test, whose port varies."""
    monkeypatch.setattr(Repository, "__str__", lambda _: "localhost/fleet/tiny")


def name(
    project: Path, *images: Image, formats: Sequence[Form] = ("sif",)
) -> None:
    plans = [(one, BOTH) for one in images]
    publishing.name(plans, order(project, *formats), Silent())


@pytest.mark.usefixtures("here")
def test_the_images_of_a_version_get_its_tag_and_their_records_state_it(
    project: Path, harbour: Harbour
) -> None:
    for architecture in BOTH:
        have(harbour, definition.on(image(), architecture))
    name(project, image())
    release = forms.names("sif", image()).release
    assert harbour.has(release) == harbour.has(forms.names("sif", image()).index)
    assert [one.release for one in digests.load(digests.project_path()).published] == [release] * 2


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("lacks", ["record", "image"])
@pytest.mark.parametrize("where", ["architecture", "format", "image"])
def test_no_tag_is_moved_if_any_image_is_missing_or_not_recorded(
    project: Path, harbour: Harbour, lacks: str, where: str
) -> None:
    last = {
        "architecture": (tinyapp.APP_IMAGE, "sif", "arm64"),
        "format": (tinyapp.APP_IMAGE, "oci", "arm64"),
        "image": ("tiny", "oci", "arm64"),
    }[where]
    images = ["tiny", tinyapp.APP_IMAGE] if where != "image" else [tinyapp.APP_IMAGE, "tiny"]
    formats: tuple[Form, ...] = ("sif", "oci")
    for one in images:
        for form in formats:
            for architecture in BOTH:
                faulty = (one, form, architecture) == last
                if not faulty or lacks == "record":
                    have(harbour, definition.on(image(one), architecture), form,
                         recorded=not faulty)
    before = digests.project_path().read_text()
    with refused("image-unpublished", kind=BuildError):
        name(project, *map(image, images), formats=formats)
    assert harbour.put == []
    assert digests.project_path().read_text() == before


@pytest.mark.usefixtures("here")
def test_only_an_image_of_the_same_repository_and_manifest_is_recorded(
    project: Path, harbour: Harbour
) -> None:
    found = have(harbour, image())
    client = harbour.client
    assert publishing._recorded(client, "sif", found) is not None
    assert publishing._recorded(client, "oci", found) is None
    assert publishing._recorded(client, "sif", DIGEST) is None
    elsewhere: Any = type("Client", (), {"repository": "localhost:5000/me/tiny"})()
    assert publishing._recorded(elsewhere, "sif", found) is None


def test_each_architecture_can_be_run_before_the_first_image_is_built(
    project: Path, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    def require_for(model: Image) -> None:
        if model.architecture == "arm64":
            raise BuildError("not emulated", code="emulation-missing")

    monkeypatch.setattr(publishing.emulation, "require_for", require_for)
    monkeypatch.setattr(publishing.selection, "select", lambda _: pytest.fail("it begins"))
    with refused("emulation-missing", kind=BuildError):
        publishing.publish(image(), BOTH, order(project), Silent())


class Engine(Apptainer):
    """An engine whose images are only recorded; it notes what is asked of it.

    Attributes:
        here: the image on this machine, or None.
        asked: names of the methods that were called.
    """

    def __init__(self, here: BuiltImage | None) -> None:
        super().__init__("/opt/apptainer/bin/apptainer")
        self.here, self.asked = here, list[str]()

    def find(
        self, image: Image, digest: str | None = None, *, thorough: bool = True
    ) -> BuiltImage | None:
        return self.here if image.name == tinyapp.APP_IMAGE else None

    def test(self, image: Image, built: BuiltImage, reporter: Reporter) -> None:
        self.asked.append("test")

    def build(
        self, image: Image, *, base: str | None, offline: bool, reporter: Reporter
    ) -> BuiltImage:
        self.asked.append("build")
        self.here = BuiltImage(image.name, self.name, "x.sif", DIGEST, "0" * 64, 1)
        return self.here


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every image on this machine count as built from its definition."""
    monkeypatch.setattr(publishing.origin, "require", lambda *_, **__: None)
    monkeypatch.setattr(publishing, "_describe", lambda *_: None)


def prepare(project: Path, harbour: Harbour, engine: Engine, **more: Any) -> BuiltImage:
    model = definition.on(image(), "amd64")
    return publishing._tested(model, engine, harbour.client, order(project, **more), Silent())


def a_sif() -> BuiltImage:
    return BuiltImage(tinyapp.APP_IMAGE, "apptainer", "x.sif", DIGEST, "0" * 64, 1)


def test_an_image_of_unknown_origin_is_not_tested(project: Path, harbour: Harbour) -> None:
    engine = Engine(a_sif())
    with refused("origin-unknown", tinyapp.APP_IMAGE, kind=BuildError):
        prepare(project, harbour, engine)
    assert engine.asked == []


def test_nothing_is_built_on_a_framework_image_of_unknown_origin(
    project: Path, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(None)
    monkeypatch.setattr(engine, "find", lambda model, *_: a_sif() if model.name == "tiny" else None)
    with refused("origin-unknown", "tiny", kind=BuildError):
        prepare(project, harbour, engine)
    assert engine.asked == []


def test_what_another_has_pushed_is_not_pulled_without_a_record_or_a_key(
    project: Path, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(harbour, definition.on(image(), "amd64"), recorded=False)
    monkeypatch.setattr(publishing.registry, "pull", lambda *_, **__: pytest.fail("it is pulled"))
    with refused("origin-unknown", kind=BuildError):
        prepare(project, harbour, Engine(None))


@pytest.mark.usefixtures("known")
def test_an_image_is_built_or_else_tested(
    project: Path, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    for engine, step in ((Engine(None), "build"), (Engine(a_sif()), "test")):
        assert prepare(project, harbour, engine) == a_sif()
        assert engine.asked == [step]
    have(harbour, definition.on(image(), "amd64"))
    engine = Engine(None)
    monkeypatch.setattr(publishing.registry, "pull", lambda *_, **__: a_sif())
    prepare(project, harbour, engine)
    assert engine.asked == ["test"]


def refuse_signature(sif: Path, accepted: object) -> None:
    raise RunError(f"{sif} is not signed", code="signature-missing")


@pytest.mark.usefixtures("known")
def test_a_sif_in_the_registry_without_our_signature_is_refused(
    project: Path, harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(harbour, definition.on(image(), "amd64"))
    monkeypatch.setattr(signing, "require", refuse_signature)
    monkeypatch.setattr(signing, "sign", lambda *_: pytest.fail("its tag cannot be moved"))
    with refused("signature-missing", "x.sif", kind=RunError):
        prepare(project, harbour, Engine(a_sif()), key=KEY)
    prepare(project, harbour, Engine(a_sif()))


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("code", ["signature-exists", "passphrase-wrong"])
def test_a_sif_that_the_key_has_signed_already_is_not_signed_again(
    project: Path, harbour: Harbour, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def sign(sif: Path, *_: object) -> None:
        raise UsageError(f"{sif}", code=code)

    monkeypatch.setattr(signing, "sign", sign)
    monkeypatch.setattr(signing, "require", lambda *_: None)
    if code == "signature-exists":
        assert prepare(project, harbour, Engine(a_sif()), key=KEY) == a_sif()
    else:
        with refused(code, kind=TrimaranError):
            prepare(project, harbour, Engine(a_sif()), key=KEY)


@pytest.mark.parametrize("formats", [("oci",), ("sif", "oci")])
def test_a_publication_without_a_sif_warns_of_what_it_lacks(
    project: Path, harbour: Harbour, monkeypatch: pytest.MonkeyPatch, formats: Sequence[Form]
) -> None:
    told = Silent()
    monkeypatch.setattr(publishing.selection, "select", lambda _: None)
    publishing.publish(image(), [], order(project, *formats), told)
    assert bool(told.warnings) is (formats == ("oci",))
