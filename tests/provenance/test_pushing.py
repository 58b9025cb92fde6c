"""Tests of tags that are never moved, and of the tag of the version, with others at work."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from harbours import LAYER, Harbour, digest_of, index, manifest, serving
from refusals import refused
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import BuildError
from trimaran.images import definition
from trimaran.provenance import digests, registry
from trimaran.provenance.registry import forms, pushing
from trimaran.provenance.registry.api import PART, Client
from trimaran.provenance.registry.manifests import MANIFESTS, Manifest
from trimaran.reporting import Reporter, Silent

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("collected_sockets"),
]

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")
AMD64 = definition.on(TINY, "amd64")
NAMES = forms.names("sif", AMD64)
CONTENT: dict[Architecture, str] = {
    one: forms.names("sif", definition.on(TINY, one)).content for one in TINY.architectures
}


@pytest.fixture
def harbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harbour]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving() as server:
        server.reply["/v2/"] = (200, {}, b"{}")
        yield server


def digest(name: str) -> str:
    return f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def sif_manifest(name: str) -> bytes:
    """Return the manifest of a made-up SIF, whose SHA-256 is that of `name`."""
    content = json.loads(manifest())
    content["layers"][0]["digest"] = digest(name)
    return json.dumps({"mediaType": MANIFESTS[0], **content}).encode()


def built(name: str) -> BuiltImage:
    return BuiltImage(AMD64.name, "apptainer", f"{name}.sif", digest(name), "0" * 64, 5_000_000)


class Loading(forms.Sif):
    """A format that stores a manifest instead of uploading a SIF.

    Attributes:
        during: function that is called before the end of each upload.
        tags: the tags under which it has uploaded.
    """

    def __init__(
        self, harbour: Harbour, during: Callable[[], object] = lambda: None,
        sent: str | None = None,
    ) -> None:
        super().__init__(Apptainer("/opt/apptainer/bin/apptainer"))
        self.harbour, self.during, self.sent = harbour, during, sent
        self.tags: list[str] = []

    def push(self, built: BuiltImage, client: Client, tag: str, reporter: Reporter) -> None:
        self.during()
        self.tags.append(tag)
        self.harbour.have(tag, sif_manifest(self.sent or Path(built.reference).stem))


def upload(form: forms.Form, harbour: Harbour, name: str) -> digests.Publication:
    return pushing.upload(form, harbour.client, AMD64, built(name), Silent())


@pytest.mark.parametrize("deletes", [True, False])
def test_an_image_gets_the_tag_of_its_content_after_its_upload(
    harbour: Harbour, deletes: bool
) -> None:
    harbour.deletes = deletes
    form = Loading(harbour)
    one = upload(form, harbour, "ours")
    [temporary] = form.tags
    assert temporary.startswith(f"{NAMES.content}{PART}")
    assert one.tag == NAMES.content
    assert (one.digest, one.manifest) == (digest("ours"), harbour.has(NAMES.content))
    assert (harbour.has(temporary) is None) is deletes
    assert upload(form, harbour, "ours") == one
    assert len(form.tags) == 1, "what is there is not uploaded again"


def test_the_slower_of_two_publishers_overwrites_nothing(harbour: Harbour) -> None:
    faster: list[digests.Publication] = []
    form = Loading(harbour, during=lambda: faster.append(upload(Loading(harbour), harbour, "B")))
    with refused("tag-taken", NAMES.content, digest("A"), digest("B"), kind=BuildError):
        upload(form, harbour, "A")
    assert harbour.has(NAMES.content) == faster[0].manifest
    assert not [path for path in harbour.reply if PART in path]


def test_other_bytes_than_were_pushed_get_no_tag(harbour: Harbour) -> None:
    with refused("digest-mismatch", digest("ours"), digest("other"), kind=BuildError):
        upload(Loading(harbour, sent="other"), harbour, "ours")
    assert harbour.has(NAMES.content) is None


def test_a_manifest_gets_another_tag_only_with_its_own_bytes(harbour: Harbour) -> None:
    harbour.have("here", sif_manifest("A"))
    found = harbour.client.manifest("here")
    assert found is not None
    harbour.client.copy(found, "there")
    assert harbour.has("there") == found.digest
    harbour.reply[f"/v2/fleet/tiny/manifests/{found.digest}"] = (200, {}, sif_manifest("B"))
    with refused("digest-mismatch", found.digest, kind=BuildError):
        harbour.client.copy(found, "elsewhere")
    assert harbour.has("elsewhere") is None


def test_a_missing_tag_is_not_explained_by_those_of_uploads(harbour: Harbour) -> None:
    tags = {"tags": ["1", f"1{PART}0"]}
    harbour.reply["/v2/fleet/tiny/tags/list"] = (200, {}, json.dumps(tags).encode())
    assert PART not in harbour.client.not_there("2").message


def name_them(
    harbour: Harbour, told: Silent | None = None, required: tuple[Architecture, ...] = ()
) -> Mapping[Architecture, Manifest]:
    return pushing.publish_index("sif", harbour.client, TINY, told or Silent(), required)


def test_the_tag_of_the_version_points_to_all_images_and_so_does_that_of_their_content(
    harbour: Harbour,
) -> None:
    harbour.have(CONTENT["amd64"], sif_manifest("amd"))
    told = Silent()
    assert list(name_them(harbour)) == ["amd64"]
    assert harbour.has(NAMES.index) is None
    first = harbour.has(NAMES.release)
    harbour.have(CONTENT["arm64"], sif_manifest("arm"))
    assert set(name_them(harbour, told)) == {"amd64", "arm64"}
    assert harbour.has(NAMES.index) == harbour.has(NAMES.release)
    assert str(first) in " ".join(told.warnings)


def test_an_image_that_must_be_published_is_missing(harbour: Harbour) -> None:
    harbour.have(CONTENT["amd64"], sif_manifest("amd"))
    with refused("image-unpublished", CONTENT["arm64"], kind=BuildError):
        name_them(harbour, required=("arm64",))
    assert harbour.put == []


def test_an_index_never_takes_the_tag_of_other_images(harbour: Harbour) -> None:
    for one, tag in CONTENT.items():
        harbour.have(tag, sif_manifest(one))
    other = index(amd64=b"x", arm64=b"y")
    harbour.have(NAMES.index, other)
    with refused("tag-taken", NAMES.index, digest_of(other), kind=BuildError):
        name_them(harbour)
    assert harbour.put == []


def test_the_version_keeps_the_architectures_that_are_not_published_yet(harbour: Harbour) -> None:
    harbour.have(CONTENT["amd64"], sif_manifest("new"))
    harbour.have(NAMES.release, index(arm64=b"x", amd64=b"y"))
    told = Silent()
    assert name_them(harbour, told) == {}
    assert harbour.put == []
    assert "arm64" in " ".join(told.warnings)


@pytest.mark.parametrize(("recorded", "moved"), [("arm64", False), ("amd64", True), (None, False)])
def test_the_version_keeps_a_single_image_for_another_architecture(
    harbour: Harbour, recorded: Architecture | None, moved: bool
) -> None:
    harbour.have(CONTENT["amd64"], sif_manifest("new"))
    old = sif_manifest("old")
    harbour.have(NAMES.release, old)
    if recorded is not None:
        path = digests.own_path()
        assert path is not None
        digests.record(digests.Publication(
            image=TINY.name, form="sif", architecture=recorded, digest=LAYER, size=1,
            reference="host.example/fleet/tiny:1", manifest=digest_of(old), content="0" * 64,
        ), path)
    told = Silent()
    assert bool(name_them(harbour, told)) is moved
    assert (harbour.has(NAMES.release) != digest_of(old)) is moved
    assert moved or recorded or "unknown" in " ".join(told.warnings)


@pytest.mark.parametrize(("architecture", "moved"), [("arm64", False), ("amd64", True)])
def test_a_single_oci_image_states_its_architecture(
    harbour: Harbour, architecture: str, moved: bool
) -> None:
    tags = forms.names("oci", AMD64)
    harbour.have(tags.content, sif_manifest("new"))
    config = json.dumps({"architecture": architecture}).encode()
    harbour.reply[f"/v2/fleet/tiny/blobs/{digest_of(config)}"] = (200, {}, config)
    blob = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(config),
            "size": len(config)}
    harbour.have(tags.release, json.dumps({"config": blob, "layers": []}).encode())
    named = pushing.publish_index("oci", harbour.client, TINY, Silent())
    assert bool(named) is moved


def after_put(monkeypatch: pytest.MonkeyPatch, *events: Callable[[], object]) -> None:
    """Call one of `events` after each push of an index."""
    put, left = Client.put_index, list(events)

    def put_and_go_on(
        self: Client, tags: list[str], members: Mapping[Architecture, Manifest]
    ) -> str:
        digest = put(self, tags, members)
        if left:
            left.pop(0)()
        return digest

    monkeypatch.setattr(Client, "put_index", put_and_go_on)


def test_no_architecture_is_lost_that_another_machine_publishes_at_the_same_time(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbour.have(CONTENT["amd64"], sif_manifest("amd"))
    after_put(monkeypatch, lambda: harbour.have(CONTENT["arm64"], sif_manifest("arm")))
    assert set(name_them(harbour)) == {"amd64", "arm64"}
    assert harbour.client.architectures(NAMES.release) == {"amd64", "arm64"}


def test_the_tag_is_moved_again_if_another_machine_moves_it_back(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbour.have(CONTENT["amd64"], sif_manifest("amd"))
    after_put(monkeypatch, lambda: harbour.have(NAMES.release, index(amd64=b"older")))
    assert set(name_them(harbour)) == {"amd64"}
    assert harbour.has(NAMES.release) == digest_of(harbour.put[-1][1])


def test_machines_do_not_move_the_tag_for_ever(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbour.have(CONTENT["amd64"], sif_manifest("amd"))
    after_put(monkeypatch, *[
        lambda: harbour.have(NAMES.release, index(amd64=b"older"))] * pushing.ATTEMPTS)
    with refused("in-use", NAMES.release, kind=BuildError):
        name_them(harbour)


def test_a_push_is_recorded_even_if_its_version_cannot_be_named(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "of", lambda engine: Loading(harbour))
    monkeypatch.setattr(registry, "connect", lambda *_, **__: harbour.client)
    monkeypatch.setattr(registry, "require", lambda *_: built("ours"))

    def push() -> digests.Publication:
        return registry.push(
            AMD64, Apptainer("/opt/apptainer/bin/apptainer"), registry="a.example/b",
            insecure=False, reporter=Silent())

    with monkeypatch.context() as failing:
        def publish_index(*_: object) -> None:
            raise BuildError("no answer", code="registry-failed")

        failing.setattr(pushing, "publish_index", publish_index)
        with refused("registry-failed"):
            push()
    [known] = digests.load(digests.own_path()).published
    assert (known.digest, known.release) == (digest("ours"), None)
    push()
    [known] = digests.load(digests.own_path()).published
    assert (known.digest, known.release) == (digest("ours"), NAMES.release)
