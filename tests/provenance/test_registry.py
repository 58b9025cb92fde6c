"""Tests of the registry client without an engine: logins, tokens, redirects, invalid answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import hostile
import rawserver
from harbours import BASIC, LAYER, Harbour, digest_of, index, manifest, serving
from refusals import refused
from trimaran import paths
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, podman, store
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.host import Host
from trimaran.engines.podman import Podman
from trimaran.errors import BuildError, UsageError
from trimaran.images import content_hash, definition
from trimaran.inventory import catalog
from trimaran.provenance import registry
from trimaran.provenance.digests import Publication
from trimaran.provenance.registry import forms, logins
from trimaran.provenance.registry.api import Client, Repository, is_loopback
from trimaran.provenance.registry.manifests import MANIFESTS, Content, Manifest, index_digest
from trimaran.reporting import Silent
from trimaran.site_file import Site
from trimaran.terminal_safety import message

# A server that is cut off leaves a socket of urllib3's to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("collected_sockets"),
]

SIF_FOR_ARM64 = bytes(32) + b"SIF_MAGIC\0" + b"01\0" + b"04\0" + bytes(80)
PODMAN = forms.Oci(object.__new__(Podman))  # as much of it as is asked without the program
TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")


@pytest.fixture
def harbour() -> Iterator[Harbour]:
    with serving() as server:
        server.reply["/v2/"] = (200, {}, b"{}")
        yield server


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a home folder without logins, and no proxy; return the folder."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "APPTAINER_CONFIGDIR", "XDG_RUNTIME_DIR",
                 "XDG_CONFIG_HOME", registry.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return place


def _questions(client: Client) -> list[Callable[[], object]]:
    return [
        client.check, client.tags, lambda: client.manifest("1"), lambda: client.manifest(LAYER),
        lambda: client.blob_size(LAYER), lambda: client.not_there("1").message,
        lambda: client.manifest("1", "amd64"), lambda: client.digest_of("1"),
        lambda: client.blob(LAYER),
    ]


def log_in(path: Path, key: str, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"auths": {key: {"auth": BASIC}}, **more}))


def test_a_basic_challenge_gets_the_login(harbour: Harbour, home: Path) -> None:
    harbour.scheme = 'Basic realm="harbour"'
    with refused("login-refused", harbour.host, kind=BuildError):
        harbour.client.check()
    log_in(home / ".docker/config.json", harbour.host)
    Client(harbour.client.repository).check()


def test_a_token_is_fetched_with_the_login_and_again_when_it_expires(
    harbour: Harbour, home: Path
) -> None:
    harbour.scheme = (
        f'Bearer realm="http://{harbour.host}/token",service="harbour",scope="repository:x:pull"'
    )
    log_in(home / ".docker/config.json", harbour.host)
    client = harbour.client
    client.check()
    harbour.tokens.append("another, so that the first is no longer good")
    client.check()
    fetched = [auth for path, auth in harbour.asked if path.startswith("/token")]
    assert fetched == [f"Basic {BASIC}"] * 2
    assert "/token?service=harbour&scope=repository%3Ax%3Apull" in dict(harbour.asked)


def test_without_a_login_a_token_is_asked_for_anonymously(
    harbour: Harbour, home: Path
) -> None:
    harbour.scheme = f'Bearer realm="http://{harbour.host}/token"'
    (home / ".netrc").write_text("machine 127.0.0.1 login sailor password secret\n")
    (home / ".netrc").chmod(0o600)
    harbour.client.check()
    assert {auth for path, auth in harbour.asked if path.startswith("/token")} == {None}


def test_a_login_goes_to_no_other_host(harbour: Harbour, home: Path) -> None:
    log_in(home / ".docker/config.json", harbour.host)
    harbour.scheme = f'Basic realm="{harbour.host}"'
    with serving() as elsewhere:
        elsewhere.scheme = 'Basic realm="elsewhere"'
        blob = f"/v2/fleet/tiny/blobs/{LAYER}"
        harbour.reply[blob] = (307, {"Location": f"http://{elsewhere.host}{blob}"}, b"")
        with refused("login-refused", kind=BuildError):
            harbour.client.blob_size(LAYER)
        assert elsewhere.asked == [(blob, None)]


def test_a_realm_without_tls_gets_nothing_from_a_registry_with_it() -> None:
    client = Client(Repository("registry.example", "fleet/tiny"))
    assert client.session.auth._meet('Bearer realm="http://registry.example/token"') is None


def test_the_bytes_of_a_manifest_must_have_its_digest(harbour: Harbour) -> None:
    body = manifest()
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    harbour.reply[f"/v2/fleet/tiny/manifests/{digest}"] = (200, {}, body)
    found = harbour.client.manifest(digest)
    assert found is not None
    assert found.digest == digest
    harbour.reply[f"/v2/fleet/tiny/manifests/{digest}"] = (200, {}, body + b" ")
    with refused("digest-mismatch", digest, kind=BuildError):
        harbour.client.manifest(digest)


@pytest.mark.parametrize("body", [b"no json", b"{}", b'{"config": 1, "layers": []}'])
def test_what_is_no_manifest_is_refused(harbour: Harbour, body: bytes) -> None:
    harbour.reply["/v2/fleet/tiny/manifests/1"] = (200, {}, body)
    with refused("manifest-invalid", harbour.client.repository, kind=BuildError):
        harbour.client.manifest("1")


def test_a_form_is_not_taken_for_the_other(harbour: Harbour) -> None:
    sif = forms.Sif(Apptainer("/opt/apptainer/bin/apptainer"))
    path = "/v2/fleet/tiny/manifests/1"
    harbour.reply[path] = (200, {}, manifest("application/vnd.oci.image.layer.v1.tar"))
    with refused("image-other-engine", "SIF", kind=BuildError):
        sif.offer(harbour.client, "1", "amd64")
    harbour.reply[path] = (200, {}, manifest(config="application/vnd.sylabs.sif.config.v1+json"))
    with refused("image-other-engine", "OCI", kind=BuildError):
        PODMAN.offer(harbour.client, "1", "amd64")
    offer = sif.offer(harbour.client, "1", "amd64")
    assert offer is not None
    assert (offer.digest, offer.size) == (LAYER, 5_000_000)


def test_a_sif_is_found_by_the_digest_of_the_file_too(harbour: Harbour) -> None:
    harbour.reply[f"/v2/fleet/tiny/blobs/{LAYER}"] = (200, {"Content-Length": "5000000"}, b"")
    sif = forms.Sif(Apptainer("/opt/apptainer/bin/apptainer"))
    assert sif.offer(harbour.client, LAYER, "amd64") == forms.Offer(LAYER, None, 5_000_000)


def test_what_is_missing_is_said_with_the_tags_that_are_there(harbour: Harbour) -> None:
    tags = json.dumps({"tags": [f"{n}.0" for n in range(10)]}).encode()
    harbour.reply["/v2/fleet/tiny/tags/list"] = (200, {}, tags)
    error = harbour.client.not_there("11.0")
    assert error.code == "image-unpublished"
    assert "11.0; " in error.message
    assert "2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, and 2 more" in error.message


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_error_of_the_registry_is_named(harbour: Harbour, status: int) -> None:
    harbour.reply["/v2/"] = (status, {}, b"")
    with refused("registry-failed", harbour.host, f"HTTP {status}", kind=BuildError):
        harbour.client.check()


def test_only_this_machine_may_do_without_tls(harbour: Harbour) -> None:
    assert harbour.client.plain_http
    assert [is_loopback(host) for host in ("localhost:5000", "127.0.0.2", "localhost.example",
                                           "10.0.0.1:5000", "registry.example")] == [
        True, True, False, False, False]
    assert not Client(Repository("registry.example", "x/tiny")).plain_http


def test_logins_are_found_where_the_commands_keep_them(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert logins.find("host.example", "team/tiny") is None
    docker = home / ".docker/config.json"
    log_in(docker, "https://host.example/v2/")
    assert logins.find("host.example", "team/tiny") == logins.Login(docker, f"Basic {BASIC}")
    apptainer = home / ".apptainer/docker-config.json"
    log_in(apptainer, "host.example")
    podman = tmp_path / "containers/auth.json"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    log_in(podman, "host.example/team")
    named = tmp_path / "named.json"
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(named))
    log_in(named, "host.example")
    for file in (named, podman, apptainer, docker):
        found = logins.find("host.example", "team/tiny")
        assert found is not None
        assert found.file == file
        assert BASIC not in repr(found)
        file.unlink()
    log_in(docker, "https://index.docker.io/v1/")
    assert logins.find("docker.io", "team/tiny") is not None


def test_a_narrower_login_goes_first(home: Path) -> None:
    path = home / ".docker/config.json"
    log_in(path, "host.example")
    content = json.loads(path.read_text())
    content["auths"]["host.example/team"] = {"auth": "bmFycm93"}
    path.write_text(json.dumps(content))
    assert logins.find("host.example", "team/tiny") == logins.Login(path, "Basic bmFycm93")
    assert logins.find("host.example", "other/tiny") == logins.Login(path, f"Basic {BASIC}")


def test_a_credential_helper_is_asked(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-vault"
    helper.write_text(
        '#!/bin/sh\nread host\n[ "$host" = host.example ] || { echo not found; exit 1; }\n'
        'echo \'{"Username": "sailor", "Secret": "secret"}\'\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    log_in(home / ".docker/config.json", "other.example", credsStore="vault")
    found = logins.find("host.example", "team/tiny")
    assert found is not None
    assert found.basic == f"Basic {BASIC}"
    assert logins.find("unknown.example", "team/tiny") is None


def test_a_broken_file_of_logins_is_named_without_its_content(home: Path) -> None:
    path = home / ".docker/config.json"
    path.parent.mkdir()
    path.write_text('{"auths": {"host.example": {"auth": "' + BASIC)
    with refused("login-invalid", path, kind=UsageError) as caught:
        logins.find("host.example", "team/tiny")
    assert BASIC not in caught.value.message + str(caught.value.__cause__)


HOSTILE = [  # of each an answer with status 200
    *hostile.JSON,
    json.dumps({"config": 5, "layers": 5}),
    json.dumps({"config": {}, "layers": {}}),
    json.dumps({"config": {"mediaType": "image", "digest": LAYER, "size": 10**30}, "layers": []}),
    json.dumps({"config": {"mediaType": "image", "digest": LAYER, "size": -1}, "layers": []}),
    json.dumps({"config": {"mediaType": "image", "digest": "../../x", "size": 1}, "layers": []}),
    json.dumps({"tags": 5}), json.dumps({"tags": [1, {}, None]}), json.dumps({"tags": {"a": 1}}),
    json.dumps({"token": 5}), json.dumps({"token": {"a": 1}}), json.dumps({"token": "a\r\nX: y"}),
    json.dumps({"token": "\u20ac"}), json.dumps({"access_token": []}), " " * 5_000_000,
]


def test_no_answer_of_a_registry_gives_more_than_one_error(harbour: Harbour) -> None:
    for body in HOSTILE:
        for path in ("tags/list", "manifests/1", f"manifests/{LAYER}"):
            harbour.reply[f"/v2/fleet/tiny/{path}"] = (200, {}, body.encode())
        for ask in _questions(harbour.client):
            hostile.keeps_the_property(ask)


@hostile.quick
@given(place=hostile.places, value=hostile.json_values, key=hostile.more_keys)
def test_a_manifest_with_any_value_spoiled_is_one_error(
    harbour: Harbour, place: int, value: object, key: str | None
) -> None:
    content = hostile.spoil(json.loads(manifest()), place, value, key)
    harbour.reply["/v2/fleet/tiny/manifests/1"] = (200, {}, json.dumps(content).encode())
    hostile.keeps_the_property(lambda: harbour.client.manifest("1"))


CHALLENGES = [
    "Bearer", "Bearer ", 'Bearer realm=""', 'Bearer realm="http://["', 'Bearer realm="file:///a"',
    'Bearer realm="/token"', "Bearer realm=http://127.0.0.1:zz/", "Basic", "", "=", "\x1b[31m",
    'Bearer realm="http://127.0.0.1:1/token"', 'Bearer ,,,="', "Bearer realm",
]


def test_no_challenge_gives_more_than_one_error(harbour: Harbour, home: Path) -> None:
    log_in(home / ".docker/config.json", harbour.host)
    for challenge in CHALLENGES:
        answer = (401, {"WWW-Authenticate": challenge}, b"")
        harbour.reply = dict.fromkeys(["/v2/", "/v2/fleet/tiny/manifests/1"], answer)
        for ask in (harbour.client.check, lambda: harbour.client.manifest("1")):
            error = hostile.refusal(ask)
            assert error is not None
            assert error.exit_code == 3
            assert BASIC not in f"{error.message}{error.hint}"


def test_what_is_no_token_is_one_error(harbour: Harbour) -> None:
    challenge = f'Bearer realm="http://{harbour.host}/realm"'
    harbour.reply["/v2/"] = (401, {"WWW-Authenticate": challenge}, b"")
    for body in HOSTILE:
        harbour.reply["/realm"] = (200, {}, body.encode())
        error = hostile.refusal(harbour.client.check)
        assert error is not None
        assert error.exit_code == 3


def test_what_a_server_writes_of_a_status_is_cut_and_reaches_no_terminal_as_a_code(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    with rawserver.serving() as server:
        head = b"HTTP/1.1 500 \x1b]0;a\x07" + b"no" * 9999
        server.reply = head + b"\r\nContent-Length: 0\r\n\r\n"
        client = Client(Repository(server.host, "fleet/tiny"))
        error = hostile.refusal(client.check)
    assert error is not None
    assert len(error.message) < 200
    assert hostile.is_harmless(message(error.message))


def test_a_registry_that_says_more_than_a_manifest_can_have_is_cut_off(harbour: Harbour) -> None:
    with rawserver.serving() as server:
        server.reply = rawserver.endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536)
        client = Client(Repository(server.host, "fleet/tiny"))
        with refused("registry-failed", server.host, "4,194,304", kind=BuildError):
            client.manifest("1")


def test_option_goes_before_environment_before_site_file(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(registry="site.example/team")
    assert registry.configured(None, Site()) is None
    assert registry.configured(None, site) == "site.example/team"
    monkeypatch.setenv(registry.VARIABLE, "env.example/team")
    assert registry.configured(None, site) == "env.example/team"
    assert registry.configured("option.example:5000/a/b", site) == "option.example:5000/a/b"
    for wrong in ("https://host.example/team", "host.example", "HOST/team", "host/team;x"):
        with refused("argument-invalid", "--registry", wrong, kind=UsageError):
            registry.configured(wrong, site)


def test_the_host_engine_has_nothing_to_push() -> None:
    with pytest.raises(UsageError, match="no images"):
        registry.push(TINY, Host(), registry="a.example/b", insecure=False, reporter=Silent())


@pytest.mark.parametrize("digest", ["latest", "sha256:abc", "sha256:" + "g" * 64, "../x"])
def test_what_is_no_digest_is_not_taken_for_a_tag(digest: str) -> None:
    engine = Apptainer("/opt/apptainer/bin/apptainer")
    with refused("argument-invalid", "--digest", digest, kind=UsageError):
        registry.pull(
            TINY, engine, registry="a.example/b", digest=digest, insecure=False, reporter=Silent()
        )


@pytest.mark.parametrize("name", definition.names())
def test_every_image_has_tags_that_registries_take(name: str) -> None:
    image = definition.load(name)
    tags = set()
    for form in forms.SUFFIXES:
        names = forms.names(form, image)
        for tag in (names.content, names.index, names.release):
            tags.add(tag)
            Publication(  # which refuses a reference that is none
                image=name, form=form, reference=f"ghcr.io/owner/trimaran/{name}:{tag}",
                digest=LAYER, manifest=LAYER, size=1, content="0" * 64, release=tag,
            )
    assert len(tags) == 6


def test_the_image_for_the_architecture_is_chosen_from_an_index(harbour: Harbour) -> None:
    here, there = manifest("here"), manifest("there")
    root = "/v2/fleet/tiny/manifests"
    harbour.reply[f"{root}/1"] = (200, {}, index(arm64=there, amd64=here))
    for content in (here, there):
        harbour.reply[f"{root}/{digest_of(content)}"] = (200, {}, content)
    for architecture, content in (("amd64", here), ("arm64", there)):
        found = harbour.client.manifest("1", architecture)
        assert found is not None
        assert (found.digest, found.size) == (digest_of(content), len(content))
    with refused("manifest-invalid", kind=BuildError):
        harbour.client.manifest("1")


def test_the_architectures_of_an_index(harbour: Harbour) -> None:
    root = "/v2/fleet/tiny/manifests"
    harbour.reply[f"{root}/1"] = (200, {}, index(arm64=b"x", amd64=b"y"))
    harbour.reply[f"{root}/2"] = (200, {}, manifest("one"))
    assert harbour.client.architectures("1") == {"amd64", "arm64"}
    assert harbour.client.architectures("2") is None, "it is the manifest of an image"
    assert harbour.client.architectures("3") == set(), "there is none"


def test_an_index_that_lacks_the_architecture_names_those_it_has(harbour: Harbour) -> None:
    harbour.reply["/v2/fleet/tiny/manifests/1"] = (200, {}, index(arm64=b"x", riscv64=b"y"))
    with refused("architecture-unpublished", "amd64", "arm64, riscv64", kind=BuildError):
        harbour.client.manifest("1", "amd64")


def test_an_index_in_an_index_is_refused(harbour: Harbour) -> None:
    inner = index(amd64=manifest())
    harbour.reply["/v2/fleet/tiny/manifests/1"] = (200, {}, index(amd64=inner))
    harbour.reply[f"/v2/fleet/tiny/manifests/{digest_of(inner)}"] = (200, {}, inner)
    with refused("manifest-invalid", kind=BuildError):
        harbour.client.manifest("1", "amd64")


def test_an_oci_image_of_another_architecture_is_refused(harbour: Harbour) -> None:
    for config in (b'{"architecture": "arm64"}', b"{}", b"["):
        blob = {"digest": digest_of(config), "size": len(config)}
        harbour.reply["/v2/fleet/tiny/manifests/1"] = (200, {}, json.dumps({
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **blob},
            "layers": [],
        }).encode())
        harbour.reply[f"/v2/fleet/tiny/blobs/{digest_of(config)}"] = (200, {}, config)
        with refused("architecture-mismatch", "amd64", kind=BuildError):
            PODMAN.offer(harbour.client, "1", "amd64")
    assert PODMAN.offer(harbour.client, "2", "amd64") is None


def test_a_blob_with_another_content_is_refused(harbour: Harbour) -> None:
    harbour.reply[f"/v2/fleet/tiny/blobs/{LAYER}"] = (200, {}, b"other")
    with refused("digest-mismatch", LAYER, kind=BuildError):
        harbour.client.blob(LAYER)


def test_an_index_gets_its_tags_once(harbour: Harbour) -> None:
    content = manifest()
    members: dict[Architecture, Manifest] = {
        one: Manifest(digest_of(content), len(content), Content.model_validate_json(content))
        for one in ("arm64", "amd64")
    }
    digest = harbour.client.put_index(["a", "b"], members)
    assert [path.rpartition("/")[2] for path, _ in harbour.put] == ["a", "b"]
    assert {digest_of(body) for _, body in harbour.put} == {digest}
    assert harbour.client.put_index(["a", "b"], members) == digest
    assert len(harbour.put) == 2
    assert harbour.client.digest_of("a") == digest == index_digest(members)
    assert harbour.client.put_index(["a"], {"amd64": members["amd64"]}) != digest


def test_an_index_states_the_type_of_each_manifest(harbour: Harbour) -> None:
    docker = MANIFESTS[1]
    for kind, expected in ((None, MANIFESTS[0]), (docker, docker)):
        content = json.loads(manifest()) | ({"mediaType": kind} if kind else {})
        one = Manifest(LAYER, 1, Content.model_validate(content))
        harbour.client.put_index([f"as-{kind and 'docker'}"], {"amd64": one})
        [entry] = json.loads(harbour.put[-1][1])["manifests"]
        assert entry["mediaType"] == expected


def kept(digest: str, architecture: Architecture) -> None:
    """Record an image of Podman, whose storage keeps the content."""
    store.save(store.Record(
        name=TINY.name, engine="podman", reference="localhost/tiny:1", digest=digest,
        inputs="0" * 64, size=5, content="0" * 64, built="2026", base_name="", base_digest="",
        architecture=architecture,
    ))


def test_an_image_in_the_cache_of_another_architecture_is_refused(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman, "_stored", lambda reference: LAYER)
    kept(LAYER, "amd64")

    def pull(architecture: Architecture) -> BuiltImage:
        return registry.pull(
            definition.on(TINY, architecture), PODMAN.engine, registry="a.example/b",
            digest=LAYER, insecure=False, reporter=Silent())

    assert pull("amd64").digest == LAYER
    with refused("architecture-mismatch", LAYER, "amd64", "arm64", kind=BuildError):
        pull("arm64")


@pytest.mark.parametrize(("content", "code"), [
    (b"not a SIF", "image-invalid"), (SIF_FOR_ARM64, "architecture-mismatch"),
])
def test_a_download_that_is_no_image_for_this_architecture_does_not_stay_in_the_cache(
    harbour: Harbour, content: bytes, code: str
) -> None:
    digest = digest_of(content)
    harbour.reply[f"/v2/fleet/tiny/blobs/{digest}"] = (200, {}, content)
    offer = forms.Offer(digest, None, len(content))
    sif = forms.Sif(Apptainer("/opt/apptainer/bin/apptainer"))
    with refused(code, kind=BuildError):
        sif.pull(definition.on(TINY, "amd64"), harbour.client, offer, Silent())
    assert list(paths.cache("images").iterdir()) == []


def test_a_listing_says_what_is_here_without_reading_what_is_untouched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(store, "sha256", lambda *_: "another")
    sif = tmp_path / "tiny.sif"
    sif.write_bytes(b"12345")
    content = content_hash.content_of(TINY)
    for name, kept, size, origin in (
        ("a", content, 5, "host.example/team/tiny@sha256:1"), ("b", "old", 5, None),
        ("c", content, 6, None),
    ):
        store.save(store.Record(
            name="tiny", engine="apptainer", reference=str(sif), digest=f"sha256:{name}",
            inputs=name * 64, size=size, content=kept, built="2026", base_name="", base_digest="",
            origin=origin,
        ))
    images = catalog.local_images([TINY])["tiny"]
    found = [(image.record.digest, image.state, image.current) for image in images]
    assert found == [
        ("sha256:a", "pulled", True), ("sha256:c", "damaged", True), ("sha256:b", "built", False),
    ]
