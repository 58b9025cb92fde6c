from __future__ import annotations

from pathlib import Path

import certifi
import pytest

from refusals import refused
from trimaran import site_file

KEY = "0123456789ABCDEF0123456789ABCDEF01234567"


def write(folder: Path, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def no_site_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_without_a_file_nothing_is_asked() -> None:
    assert site_file.load(None) == site_file.Site()


def test_the_file_in_the_default_place_is_read() -> None:
    site_file.default_path().parent.mkdir(parents=True)
    site_file.default_path().write_text("schema: 1\nregistry: registry.example.org:5000/ai\n")
    assert site_file.load(None).registry == "registry.example.org:5000/ai"


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with refused("file-missing", tmp_path / "other.yaml"):
        site_file.load(tmp_path / "other.yaml")


def test_the_whole_file(tmp_path: Path) -> None:
    site = site_file.load(write(tmp_path, f"""\
schema: 1
registry: ghcr.io/owner
ca_bundle: certs/site.pem
proxy: http://proxy.example.org:3128
signatures: {{required: true, keys: ["{KEY[:20].lower()} {KEY[20:]}"]}}
binds: {{~/licences: /mnt/licences}}
"""))
    assert site.ca_bundle == tmp_path / "certs/site.pem"
    assert site.signatures == site_file.Signatures(required=True, keys=[KEY])
    assert site.binds == {Path.home() / "licences": "/mnt/licences"}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("regitry: a/b", "2: regitry: unknown key"),
        ("clusters: {a: {partition: 'x y'}}", "2: clusters.a.partition: String should match"),
        ("clusters: {a: {account: $(id)}}", "2: clusters.a.account: String should match"),
        ("clusters: {a: {constraint: \"a' b\"}}", "2: clusters.a.constraint: String should"),
        ("clusters: {a: {env: {PATH: /x}}}", "PATH is set by the batch system"),
        ("clusters: {a: {env: {SLURM_JOB_ID: x}}}", "SLURM_JOB_ID is set by the batch system"),
        ("clusters: {a: {local_storage: tmp}}", "not an absolute path"),
        ("clusters: {a: {scheduler: x}}", "clusters.a.scheduler: Input should be 'slurm', 'pbs'"),
        ("clusters: {a: {architecture: aarch64}}", "aarch64 is called arm64 here"),
        ("clusters: {a: {architecture: x86_64}}", "x86_64 is called amd64 here"),
        ("clusters: {a: {stage_data: true}}", "stage_data needs local_storage"),
        ("clusters: {a: {flags: ['$(id)']}}", "2: clusters.a.flags.0: String should match"),
        ("registry: https://a.org/b", "2: registry: String should match"),
        ("registry: a.org", "2: registry: String should match"),
        ("proxy: proxy:3128", "2: proxy: not http"),
        ("proxy: http://proxy:99999999", "2: proxy: not http"),
        ("proxy: http://me:secret@proxy", "proxy: credentials"),
        ("signatures: {required: true}", "2: signatures: 'required' needs"),
        ("signatures: {keys: [ABCD]}", "2: signatures.keys.0: String should match"),
        ("binds: {/a: data}", "not an absolute path"),
        ("binds: {/a: /data/b}", "would hide /data"),
        ("binds: {/a: /opt}", "would hide /opt/trimaran"),
        ("binds: {/a: /mnt/../usr}", "not an absolute path"),
    ],
)
def test_faults_name_file_line_and_key(tmp_path: Path, line: str, problem: str) -> None:
    path = write(tmp_path, f"schema: 1\n{line}\n")
    with refused("file-invalid") as caught:
        site_file.load(path)
    assert caught.value.message.startswith(f"{path}:2: ")
    assert problem in caught.value.message


def test_a_password_in_the_file_is_not_repeated(tmp_path: Path) -> None:
    with refused("file-invalid") as caught:
        site_file.load(write(tmp_path, "proxy: http://me:secret@proxy\n"))
    assert "secret" not in caught.value.message


def test_the_site_fills_what_the_environment_leaves_open() -> None:
    site = site_file.Site(ca_bundle=Path(certifi.where()), proxy="http://proxy:3128")
    environ = {"SSL_CERT_FILE": "mine", "HTTPS_PROXY": "http://mine"}
    site_file.apply(site, None, environ)
    assert environ == {
        "SSL_CERT_FILE": "mine", "REQUESTS_CA_BUNDLE": certifi.where(),
        "HTTPS_PROXY": "http://mine", "http_proxy": "http://proxy:3128",
    }


def test_a_bundle_on_the_command_line_wins() -> None:
    environ = {"SSL_CERT_FILE": "mine"}
    site_file.apply(site_file.Site(ca_bundle=Path("other")), Path(certifi.where()), environ)
    assert environ == dict.fromkeys(site_file.CERTIFICATES, certifi.where())


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAA\n"])
def test_a_bundle_without_certificates_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(text)
    with refused("certificates-invalid", path):
        site_file.apply(site_file.Site(), path, {})


def test_a_missing_bundle_is_refused(tmp_path: Path) -> None:
    with refused("file-missing", tmp_path / "ca.pem"):
        site_file.apply(site_file.Site(), tmp_path / "ca.pem", {})


@pytest.mark.parametrize(
    "value",
    ["::garbage", "http://[::1", "http://a:b:c", "http://x:99999999", " ", "http://", "http://.",
     "http://user:secret@", "http://" + "x" * 300, "http://\udcff", "http://a b"],
)
@pytest.mark.parametrize("name", ["https_proxy", "HTTP_PROXY", "all_proxy"])
def test_a_proxy_of_the_environment_that_is_no_address_is_refused(name: str, value: str) -> None:
    with refused("proxy-invalid", name) as error:
        site_file.apply(site_file.Site(), None, {name: value})
    assert error.value.hint is not None
    assert "secret" not in error.value.message + error.value.hint


@pytest.mark.parametrize(
    "value",
    ["", "proxy.example:3128", "http://user:secret@proxy.example:3128", "http://[::1]:3128",
     "https://10.0.0.1", "socks5h://proxy_1.example:1080", "http://größe.example"],
)
def test_any_address_of_a_proxy_is_taken(value: str) -> None:
    environ = {"https_proxy": value}
    site_file.apply(site_file.Site(), None, environ)
    assert environ == {"https_proxy": value}
