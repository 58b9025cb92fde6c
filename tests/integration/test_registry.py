"""Push and pull with Debian's docker-registry, both when the registry works and when it fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml

from refusals import refused
from registries import PASSWORD, USER, DockerRegistry, relayed, running
from trimaran import paths
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.podman import Podman
from trimaran.errors import BuildError
from trimaran.files import sha256
from trimaran.images import definition
from trimaran.provenance import digests, registry
from trimaran.recipes import cards, library
from trimaran.reporting import Advance, Silent
from trimaran.run.image import prepare_image
from trimaran.run.request import Request
from trimaran.site_file import Site

pytestmark = [pytest.mark.engine("registry"), pytest.mark.timeout(280)]

RECIPES = paths.repository() / "recipes"
RELEASE = "0.1.0-tiny-sif"


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with running(tmp_path_factory.mktemp("harbour")) as server:
        yield server


@pytest.fixture(scope="module")
def sif(tiny: definition.Image, engine_cache: Path) -> BuiltImage:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))
        return Apptainer().build(tiny, base=None, offline=False, reporter=Silent())


@pytest.fixture(scope="module")
def oci(tiny: definition.Image, engine_cache: Path) -> BuiltImage:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))
        return Podman().build(tiny, base=None, offline=False, reporter=Silent())


@pytest.fixture(autouse=True)
def place(
    checkout: Path, tiny: definition.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use a checkout that defines `tiny` and has published nothing, and a home without logins."""
    shutil.copytree(tiny.folder, checkout / "containers/frameworks/tiny")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    for name in ("TRIMARAN_REGISTRY", "TRIMARAN_SITE", "REGISTRY_AUTH_FILE", "DOCKER_CONFIG",
                 "APPTAINER_CONFIGDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME",
                 "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def here(engine_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the cache of the machine that builds and pushes images, not the cache `away`."""
    monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """Return the cache of a machine that has built nothing."""
    return tmp_path / "away"


def trimaran(
    *words: str, cache: Path | None = None, watch: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the tool; `watch` collects the command lines of all processes that it starts."""
    env = {**os.environ, "COLUMNS": "120", **({"TRIMARAN_CACHE": str(cache)} if cache else {})}
    with subprocess.Popen(
        [sys.executable, "-c", "from trimaran.cli import main; main()", *words],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:
        if watch is not None:
            threading.Thread(target=_watch, args=(child, watch), daemon=True).start()
        out, err = child.communicate(timeout=300)
    assert "Traceback" not in err
    return subprocess.CompletedProcess(words, child.returncode, out, " ".join(err.split()))


def _watch(child: subprocess.Popen[str], lines: list[str]) -> None:
    while child.poll() is None:
        try:
            family = psutil.Process(child.pid).children(recursive=True)
            lines += [" ".join(one.cmdline()) for one in family]
        except psutil.Error:
            pass
        time.sleep(0.005)


def published() -> list[dict[str, object]]:
    found: list[dict[str, object]] = yaml.safe_load(
        digests.own_path().read_text()
    )["published"]
    return found


def push(server: DockerRegistry, *words: str) -> str:
    """Push the SIF of `tiny`, and return the digest of the manifest."""
    done = trimaran("push", "tiny", "--registry", server.namespace, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().rpartition("@")[2]


@pytest.mark.engine("apptainer")
@pytest.mark.usefixtures("here")
class TestSif:
    def test_what_is_pushed_is_recorded_and_apptainer_alone_can_pull_it(
        self, harbour: DockerRegistry, sif: BuiltImage, tmp_path: Path
    ) -> None:
        manifest = push(harbour, "--engine", "apptainer")
        [known] = published()
        assert not digests.project_path().exists(), "a push changes no tracked file"
        assert known["reference"].startswith(f"{harbour.namespace}/tiny:")
        assert known["release"] == RELEASE
        assert (known["digest"], known["manifest"]) == (sif.digest, manifest)
        subprocess.run(
            [Apptainer().executable, "--quiet", "pull", "--no-https", str(tmp_path / "got.sif"),
             f"oras://{harbour.namespace}/tiny:{RELEASE}"],
            check=True, timeout=300,
        )
        assert f"sha256:{sha256(tmp_path / 'got.sif')}" == sif.digest

    def test_pushing_it_again_sends_nothing_and_changes_nothing(
        self, harbour: DockerRegistry, sif: BuiltImage
    ) -> None:
        first = push(harbour)
        text = digests.own_path().read_text()
        lines: list[str] = []
        done = trimaran("push", "tiny", "--registry", harbour.namespace, watch=lines)
        assert done.stdout.strip().endswith(f"@{first}")
        assert not [line for line in lines if "oras://" in line]
        assert digests.own_path().read_text() == text

    def test_another_machine_pulls_by_the_recorded_digest_and_can_use_it(
        self, harbour: DockerRegistry, sif: BuiltImage, away: Path
    ) -> None:
        push(harbour)
        done = trimaran("pull", "tiny", cache=away)  # digests.yaml says where it is
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[1] == sif.digest
        assert trimaran("test-image", "tiny", cache=away).returncode == 0
        [record] = away.glob("images/*.json")
        assert json.loads(record.read_text())["origin"].startswith(f"{harbour.namespace}/tiny@sha")
        [pulled] = away.glob("images/*.sif")
        assert pulled.stat().st_mode == Path(sif.reference).stat().st_mode
        again = trimaran("pull", "tiny", cache=away)
        assert "has tiny already" in again.stderr

    def test_a_listing_says_what_is_built_pulled_and_published(
        self, harbour: DockerRegistry, sif: BuiltImage, away: Path
    ) -> None:
        push(harbour)
        short = str(sif.digest).removeprefix("sha256:")[:12]
        assert "built (apptainer, " in trimaran("list", "images").stdout
        assert "not here" in trimaran("list", "images", cache=away).stdout
        trimaran("pull", "tiny", cache=away)
        shown = trimaran("list", "images", cache=away).stdout
        assert "pulled (apptainer, " in shown
        assert short in shown
        [row] = json.loads(trimaran("list", "images", "--json", cache=away).stdout)
        [here], [known] = row["here"], row["published"]
        assert (here["state"], here["digest"], here["size"]) == ("pulled", sif.digest, sif.size)
        assert known["release"] == RELEASE

    def test_a_push_that_fails_records_nothing(
        self, harbour: DockerRegistry, sif: BuiltImage
    ) -> None:
        with relayed(harbour) as relay:  # it lets nobody write
            done = trimaran("push", "tiny", "--registry", relay.namespace.replace("fleet", "new"))
        assert done.returncode == 3
        assert "[program-failed]" in done.stderr
        assert not digests.own_path().exists()

    def test_the_registry_comes_from_option_environment_or_site_file(
        self, harbour: DockerRegistry, sif: BuiltImage, away: Path,
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        push(harbour)
        digests.own_path().unlink()
        nowhere = trimaran("pull", "tiny", cache=away)
        assert nowhere.returncode == 2
        for way in ("--registry", "TRIMARAN_REGISTRY", "registry: into the site file"):
            assert way in nowhere.stderr
        site = tmp_path / "site.yaml"
        site.write_text(f"registry: {harbour.namespace}\n")
        unpinned = trimaran("pull", "tiny", "--site", str(site), cache=away)
        assert unpinned.returncode == 0, unpinned.stderr
        assert "--digest sha256:" in unpinned.stderr
        shutil.rmtree(away)
        monkeypatch.setenv("TRIMARAN_REGISTRY", harbour.namespace)
        pinned = trimaran("pull", "tiny", "--digest", str(sif.digest), cache=away)
        assert pinned.returncode == 0, pinned.stderr
        assert "no digest" not in pinned.stderr

    def test_a_digest_that_is_not_there_names_the_tags_that_are(
        self, harbour: DockerRegistry, sif: BuiltImage, away: Path
    ) -> None:
        push(harbour)
        absent = "sha256:" + "0" * 64
        done = trimaran(
            "pull", "tiny", "--registry", harbour.namespace, "--digest", absent, cache=away
        )
        assert done.returncode == 3
        assert f"has no {absent}" in done.stderr
        assert RELEASE in done.stderr

    def test_other_bytes_than_the_digest_says_never_become_the_image(
        self, harbour: DockerRegistry, sif: BuiltImage, away: Path
    ) -> None:
        push(harbour)
        with relayed(harbour) as relay:
            relay.flip = True
            done = trimaran("pull", "tiny", "--registry", relay.namespace, cache=away)
        assert done.returncode == 3
        assert "SHA-256" in done.stderr
        assert str(sif.digest).removeprefix("sha256:") in done.stderr
        assert list(away.glob("images/*.sif")) == []
        assert list(away.glob("images/*.json")) == []

    def test_a_layer_that_breaks_off_is_resumed(
        self, harbour: DockerRegistry, sif: BuiltImage, away: Path
    ) -> None:
        push(harbour)
        with relayed(harbour) as relay:
            relay.cut = [1_000_000]
            done = trimaran("pull", "tiny", "--registry", relay.namespace, cache=away)
        assert done.returncode == 0, done.stderr
        assert relay.blobs == [None, "bytes=1000000-"]
        assert done.stdout.split()[1] == sif.digest

    def test_a_registry_that_dies_in_the_middle_costs_only_what_is_missing(
        self, tiny: definition.Image, sif: BuiltImage, away: Path, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with running(tmp_path / "mortal") as mortal:
            push(mortal)
            monkeypatch.setenv("TRIMARAN_CACHE", str(away))
            with pytest.raises(BuildError, match="connection") as caught:
                pull(tiny, mortal.namespace, Killer(mortal))
            [part] = away.glob("images/*.part")
            kept = part.stat().st_size
            assert 0 < kept < sif.size
            assert f"{kept:,} of {sif.size:,} bytes" in str(caught.value.hint)
            with refused("registry-unreachable", mortal.host, kind=BuildError):
                pull(tiny, mortal.namespace, Silent())
            mortal.start()
            with relayed(mortal) as relay:
                again = pull(tiny, relay.namespace, Silent())
            assert relay.blobs == [f"bytes={kept}-"]
            assert again.digest == sif.digest == f"sha256:{sha256(Path(again.reference))}"

    def test_a_registry_that_is_down_is_named(
        self, sif: BuiltImage, tmp_path: Path
    ) -> None:
        gone = DockerRegistry(tmp_path)
        done = trimaran("push", "tiny", "--registry", gone.namespace)
        assert done.returncode == 3
        assert "[registry-unreachable]" in done.stderr
        assert gone.host in done.stderr

    def test_an_image_of_another_revision_is_only_for_recipes_that_pin_it(
        self, harbour: DockerRegistry, sif: BuiltImage, tiny: definition.Image, away: Path,
        checkout: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        push(harbour)
        selftest = checkout / "containers/frameworks/tiny/selftest.py"
        selftest.write_text(selftest.read_text() + "\n")
        done = trimaran("pull", "tiny", cache=away)
        assert done.returncode == 0, done.stderr
        assert "published from another definition" in done.stderr
        monkeypatch.setenv("TRIMARAN_CACHE", str(away))
        changed = definition.load("tiny")
        assert Apptainer().find(changed) is None
        pinned = Apptainer().find(changed, sif.digest)
        assert pinned is not None
        assert pinned.digest == sif.digest


@pytest.mark.engine("apptainer")
@pytest.mark.usefixtures("here")
class TestPinned:
    """Tests of a recipe that pins the digest of its image."""

    def request(
        self, folder: Path, digest: str, namespace: str | None
    ) -> Request:
        path = folder / "pinned.yaml"
        content = yaml.safe_load((RECIPES / "resnet-imagenet/cpu-quickstart.yaml").read_text())
        path.write_text(yaml.safe_dump({**content, "image": {"name": "tiny", "digest": digest}}))
        return Request(
            recipe=library.load_copy(path, "pinned", cards.load("resnet-imagenet")),
            engine=Apptainer(), changes={}, site=Site(registry=namespace),
        )

    def test_it_is_pulled_when_it_is_not_here(
        self, harbour: DockerRegistry, sif: BuiltImage, tiny: definition.Image, tmp_path: Path,
        away: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        push(harbour)
        monkeypatch.setenv("TRIMARAN_CACHE", str(away))
        known = self.request(tmp_path, str(sif.digest), None)  # by digests.yaml
        assert prepare_image(known, Silent()).digest == sif.digest
        shutil.rmtree(away)
        told = self.request(tmp_path, str(sif.digest), harbour.namespace)
        digests.own_path().unlink()
        assert prepare_image(told, Silent()).digest == sif.digest
        offline = replace(told, offline=True, site=Site())
        assert prepare_image(offline, Silent()).digest == sif.digest

    def test_another_image_is_an_error(
        self, sif: BuiltImage, tiny: definition.Image, tmp_path: Path
    ) -> None:
        wrong = "sha256:" + "0" * 64
        request = self.request(tmp_path, wrong, None)  # nobody knows it, so what is built counts
        with refused("digest-mismatch", wrong, sif.digest):
            prepare_image(request, Silent())


def pull(tiny: definition.Image, namespace: str, reporter: Silent) -> BuiltImage:
    return registry.pull(
        tiny, Apptainer(), registry=namespace, digest=None, insecure=False, reporter=reporter
    )


class Killer(Silent):
    """A reporter that kills the registry when the first bytes of the image have arrived."""

    def __init__(self, server: DockerRegistry) -> None:
        super().__init__()
        self.server = server

    @contextmanager
    def bar(
        self, description: str, total: float | None, *, unit: str = "", done: float = 0
    ) -> Iterator[Advance]:
        yield lambda amount: self.server.kill()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a self-signed certificate for localhost."""
    pem = tmp_path / "site.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(tmp_path / "key.pem"), "-out", str(pem)],
        check=True, capture_output=True,
    )
    return pem


@pytest.mark.engine("apptainer")
@pytest.mark.usefixtures("here", "sif")
def test_an_unknown_certificate_is_refused_and_a_named_one_trusted(
    certificate: Path, away: Path, tmp_path: Path
) -> None:
    with running(tmp_path / "sealed", certificate=certificate) as sealed:
        words = ("push", "tiny", "--registry", sealed.namespace)
        for extra in ((), ("--insecure",)):  # which is about no TLS at all, not about any TLS
            done = trimaran(*words, *extra)
            assert done.returncode == 3
            assert "[certificate-untrusted]" in done.stderr
            assert sealed.host in done.stderr
            assert "--ca-bundle" in done.stderr
        push(sealed, "--ca-bundle", str(certificate))
        refused = trimaran("pull", "tiny", cache=away)
        assert refused.returncode == 3
        assert "[certificate-untrusted]" in refused.stderr
        done = trimaran("pull", "tiny", "--ca-bundle", str(certificate), cache=away)
        assert done.returncode == 0, done.stderr


def log_in(host: str, password: str, *program: str) -> None:
    subprocess.run(
        [*program, "--username", USER, "--password-stdin", host], input=password, text=True,
        check=True, capture_output=True, timeout=300,
    )


@pytest.mark.engine("apptainer")
@pytest.mark.usefixtures("here", "sif")
def test_a_login_comes_from_the_login_commands_and_is_told_to_nobody(
    away: Path, checkout: Path, tmp_path: Path
) -> None:
    said: list[str] = []

    def run(*words: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = trimaran(*words, cache=cache, watch=said)
        said.extend([done.stdout, done.stderr])
        return done

    with running(tmp_path / "guarded", login=True) as guarded:
        words = ("push", "tiny", "--registry", guarded.namespace)
        absent = run(*words)
        assert absent.returncode == 3
        assert "[login-refused]" in absent.stderr
        assert guarded.host in absent.stderr
        assert "apptainer registry login" in absent.stderr
        log_in(f"docker://{guarded.host}", PASSWORD, Apptainer().executable, "registry", "login")
        [kept] = Path(os.environ["HOME"]).glob(".*/config.json")
        right = kept.read_text()
        [auth] = [entry["auth"] for entry in json.loads(right)["auths"].values()]
        kept.write_text(right.replace(auth, "d3Jvbmc6d3Jvbmc="))
        wrong = run(*words)
        assert wrong.returncode == 3
        assert "[login-refused]" in wrong.stderr
        assert guarded.host in wrong.stderr
        assert str(kept) in wrong.stderr
        kept.write_text(right)
        done = run(*words)
        assert done.returncode == 0, done.stderr
        assert run("pull", "tiny", cache=away).returncode == 0
    assert [line for line in said if "oras://" in line]  # the engine was seen
    written = [path for root in (away, checkout) for path in root.rglob("*.*") if path.is_file()]
    said += [path.read_text() for path in written if path.suffix != ".sif"]
    for secret in (PASSWORD, auth):
        assert not [text for text in said if secret in text]


@pytest.mark.long
@pytest.mark.engine("podman")
class TestOci:
    @pytest.fixture(autouse=True)
    def storage(self, engine_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # The user's own storage: podman's lies under the home that the logins are not in.
        monkeypatch.setenv("HOME", str(Path(f"~{os.environ['USER']}").expanduser()))
        monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))

    @pytest.mark.engine("apptainer")
    def test_apptainer_alone_can_pull_it_and_each_form_says_what_it_is_not(
        self, harbour: DockerRegistry, oci: BuiltImage, sif: BuiltImage, tmp_path: Path,
        away: Path,
    ) -> None:
        manifest = push(harbour, "--engine", "podman")
        subprocess.run(
            [Apptainer().executable, "--quiet", "pull", "--no-https", str(tmp_path / "got.sif"),
             f"docker://{harbour.namespace}/tiny@{manifest}"],
            check=True, timeout=300,
        )
        answer = subprocess.run(
            [Apptainer().executable, "run", str(tmp_path / "got.sif"), "--version"],
            check=True, capture_output=True, text=True, timeout=300,
        )
        assert "Python 3.11" in answer.stdout
        words = ("pull", "tiny", "--registry", harbour.namespace, "--digest")
        no_sif = trimaran(*words, manifest, "--engine", "apptainer", cache=away)
        assert "[image-other-engine]" in no_sif.stderr
        other = push(harbour, "--engine", "apptainer")
        no_oci = trimaran(*words, other, "--engine", "podman", cache=away)
        assert "[image-other-engine]" in no_oci.stderr

    @pytest.mark.engine("apptainer")
    def test_a_login_of_podman_serves_apptainer_too(
        self, sif: BuiltImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
        with running(tmp_path / "guarded", login=True) as guarded:
            log_in(guarded.host, PASSWORD, "podman", "login", "--tls-verify=false")
            push(guarded, "--engine", "apptainer")

    def test_the_oci_form_goes_there_and_comes_back(
        self, harbour: DockerRegistry, oci: BuiltImage, away: Path, checkout: Path
    ) -> None:
        push(harbour, "--engine", "podman")
        [known] = published()
        assert not digests.project_path().exists(), "a push changes no tracked file"
        assert known["form"] == "oci"
        assert known["digest"] == oci.digest
        # The storage is one for both "machines", so the image has to go first.
        subprocess.run(
            ["podman", "--storage-driver", "vfs", "rmi", "--force", str(oci.digest)[7:]],
            check=True, capture_output=True, timeout=300,
        )
        done = trimaran("pull", "tiny", "--engine", "podman", cache=away)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[1] == oci.digest
        assert trimaran("test-image", "tiny", "--engine", "podman", cache=away).returncode == 0
