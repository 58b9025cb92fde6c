"""Run Debian's docker-registry on the loopback interface, with or without TLS and login."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from serverthread import in_thread

USER = "sailor"
PASSWORD = "c0rrect-horse&\"quote"
# the bcrypt hash of PASSWORD (htpasswd -B)
HTPASSWD = "sailor:$2y$05$HdWZXTbg9ExGFzYFbKZ7kOlCKnCjwotdPdLovIUP1R2t3BP2O4or6\n"


class DockerRegistry:
    """A registry on a free port; the port does not change when the registry restarts.

    Args:
        folder: folder of its data and configuration.
        certificate: a PEM file with `key.pem` beside it; None: no TLS.
        login: whether the registry requires USER and PASSWORD.
    """

    def __init__(
        self, folder: Path, *, certificate: Path | None = None, login: bool = False
    ) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        http: dict[str, object] = {"addr": f"127.0.0.1:{self.port}", "secret": "test"}
        config: dict[str, object] = {
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
            "http": http,
        }
        if certificate is not None:
            http["tls"] = {
                "certificate": str(certificate), "key": str(certificate.with_name("key.pem")),
            }
        if login:
            (folder / "htpasswd").write_text(HTPASSWD)
            config["auth"] = {
                "htpasswd": {"realm": "test", "path": str(folder / "htpasswd")},
            }
        (folder / "config.yml").write_text(yaml.safe_dump(config))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    @property
    def namespace(self) -> str:
        """The value of the option --registry."""
        return f"{self.host}/fleet"

    def start(self) -> None:
        # docker-registry reads every variable REGISTRY_* as a setting, even REGISTRY_AUTH_FILE.
        env = {key: value for key, value in os.environ.items() if not key.startswith("REGISTRY_")}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["docker-registry", "serve", str(self.folder / "config.yml")],
                env=env, stdout=log, stderr=log,
            )
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text())

    def kill(self) -> None:
        """Kill the registry with SIGKILL, to simulate a crash."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def running(folder: Path, **options: object) -> Iterator[DockerRegistry]:
    """Run a registry that stores its data in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    registry = DockerRegistry(folder, **options)  # type: ignore[arg-type]
    try:
        registry.start()
        yield registry
    finally:
        registry.kill()


class Relay(ThreadingHTTPServer):
    """A proxy of a registry on another port, which damages the replies.

    Attributes:
        cut: bytes of a blob after which the connection is closed; each blob uses one entry.
        flip: whether one bit of each blob is inverted.
        blobs: header `Range` of each request for a blob; None: the request had no such header.
    """

    daemon_threads = True

    def __init__(self, registry: DockerRegistry) -> None:
        super().__init__(("127.0.0.1", 0), _Spoil)
        self.registry = registry
        self.cut: list[int] = []
        self.flip = False
        self.blobs: list[str | None] = []

    @property
    def namespace(self) -> str:
        return f"localhost:{self.server_port}/fleet"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print no error when a client closes the connection."""


class _Spoil(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Relay

    def log_message(self, *args: object) -> None:
        """Print no log lines."""

    def do_HEAD(self) -> None:
        self._pass_on()

    def do_GET(self) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.registry.port)
        with closing(upstream):  # close it now: a client that disconnects ends this method early
            upstream.request(self.command, self.path, headers=dict(self.headers))
            answer = upstream.getresponse()
            body = bytearray(answer.read())
        blob = self.command == "GET" and "/blobs/sha256:" in self.path
        if blob:
            self.server.blobs.append(self.headers.get("Range"))
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        if blob and self.server.flip:
            body[len(body) // 2] ^= 1
        if blob and self.server.cut:
            self.close_connection = True
            body = body[: self.server.cut.pop(0)]
        self.wfile.write(bytes(body))


def relayed(registry: DockerRegistry) -> AbstractContextManager[Relay]:
    """Return a context in which a `Relay` runs as the proxy of `registry`."""
    return in_thread(Relay(registry))
