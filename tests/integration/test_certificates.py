"""A package index with a certificate of the site: refused, then trusted if the user names it."""

from __future__ import annotations

import hashlib
import http.server
import os
import shutil
import ssl
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import certifi
import pytest

from trimaran import paths
from trimaran.images import definition, render

TINY = Path(__file__).parents[1] / "images/tiny/image.yaml"
WHEEL = "trifle-1.0-py3-none-any.whl"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server; used as a proxy, it serves the same files for every host."""

    def do_GET(self) -> None:
        self.path = urlsplit(self.path).path
        super().do_GET()

    def log_message(self, *words: object) -> None:
        """Print no log lines."""


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a file with a self-signed certificate for localhost; its key is beside it."""
    pem = tmp_path / "site.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(tmp_path / "key.pem"), "-out", str(pem)],
        check=True, capture_output=True,
    )
    return pem


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with the files of a simple package index of one wheel."""
    folder = tmp_path / "www/simple/trifle"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("trifle.py", "")
    digest = hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()
    (folder / "index.html").write_text(f'<a href="{WHEEL}#sha256={digest}">{WHEEL}</a>')
    return tmp_path / "www"


@contextmanager
def served(files: Path, context: ssl.SSLContext | None) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(files))
    )
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def index(files: Path, certificate: Path) -> Iterator[str]:
    """Serve the index over HTTPS with a self-signed certificate, and return its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with served(files, context) as port:
        yield f"https://localhost:{port}/simple"


@pytest.fixture
def trifle(checkout: Path, files: Path) -> None:
    """Define the framework image `trifle`: one wheel of the test's index, and no Debian package."""
    folder = checkout / "containers/frameworks/trifle"
    folder.mkdir(parents=True)
    digest = hashlib.sha256((files / "simple/trifle" / WHEEL).read_bytes()).hexdigest()
    shutil.copy(TINY, folder / "image.yaml")
    (folder / "debian.lock").write_text("")
    (folder / "requirements.lock").write_text(f"trifle==1.0 \\\n    --hash=sha256:{digest}\n")
    shutil.copy(TINY.with_name("selftest.py"), folder)
    render.write(definition.load("trifle"))


def fetch(index: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    said = {"REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY"}
    own = {key: value for key, value in os.environ.items() if key.upper() not in said}
    return subprocess.run(
        [sys.executable, "-c", "from trimaran.cli import main; main()", "fetch", "trifle",
         *options],
        env={**own, "PIP_INDEX_URL": index, "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull,
             "no_proxy": "localhost", **env},
        capture_output=True, text=True, check=False, timeout=300,
    )


@pytest.mark.usefixtures("trifle")
def test_an_unknown_certificate_is_refused_and_the_way_out_is_named(index: str) -> None:
    done = fetch(index)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 3, said
    assert "its certificate is not trusted" in said
    assert "--ca-bundle" in said
    assert "Traceback" not in said


@pytest.mark.usefixtures("trifle")
def test_a_named_certificate_is_trusted(
    index: str, certificate: Path, tmp_path: Path
) -> None:
    done = fetch(index, "--ca-bundle", str(certificate), "--to", str(tmp_path / "to"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "to/wheels" / WHEEL).is_file()
    laid_out = {path.name for path in (tmp_path / "to/context/trifle").iterdir()}
    assert laid_out == {"Dockerfile", "image.def", "selftest.py"}


@pytest.mark.usefixtures("trifle")
def test_the_site_file_names_it_once_for_all(index: str, certificate: Path) -> None:
    site = certificate.with_name("site.yaml")
    site.write_text(f"schema: 1\nca_bundle: {certificate.name}\n")
    assert fetch(index, "--site", str(site)).returncode == 0
    assert fetch(index, TRIMARAN_SITE=str(site)).returncode == 0


@pytest.mark.usefixtures("trifle")
def test_the_systems_store_is_trusted_unless_another_is_named(
    index: str, certificate: Path
) -> None:
    """The certificate is trusted if SSL_CERT_FILE names it, unless --ca-bundle names another file.

    The variable replaces the system's store, which only root can change.
    """
    store = str(certificate)
    done = fetch(index, SSL_CERT_FILE=store)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(paths.cache())
    instead = fetch(index, "--ca-bundle", certifi.where(), SSL_CERT_FILE=store)
    assert instead.returncode == 3
    assert "its certificate is not trusted" in " ".join(instead.stderr.split())


@pytest.mark.usefixtures("trifle")
def test_everything_goes_through_the_proxy_of_the_site(files: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    nowhere = "http://index.invalid/simple"
    with served(files, None) as port:
        site.write_text(f"proxy: http://127.0.0.1:{port}\n")
        assert fetch(nowhere).returncode == 3
        done = fetch(nowhere, "--site", str(site))
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("trifle")
def test_a_file_without_certificates_is_a_mistake_of_usage(index: str, certificate: Path) -> None:
    done = fetch(index, "--ca-bundle", str(certificate.with_name("key.pem")))
    assert done.returncode == 2
    assert "[certificates-invalid]" in " ".join(done.stderr.split())
