"""A small registry server for the tests of the registry client, without an engine."""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import AbstractContextManager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from serverthread import in_thread
from trimaran.provenance.registry import forms
from trimaran.provenance.registry.api import Client, Repository

BASIC = base64.b64encode(b"sailor:secret").decode()
LAYER = "sha256:" + "1" * 64
ROOT = "/v2/fleet/tiny/manifests"


def manifest(layer_type: str = forms.SIF_LAYER, config: str = "application/x") -> bytes:
    blob = {"digest": LAYER, "size": 5_000_000}
    return json.dumps({
        "config": {"mediaType": config, **blob, "size": 2},
        "layers": [{"mediaType": layer_type, **blob}],
    }).encode()


class Harbour(ThreadingHTTPServer):
    """A small registry server.

    Attributes:
        reply: path -> answer.
        scheme: the challenge for a login; empty: no login is required.
        tokens: the tokens that were issued.
        asked: path and header `Authorization` of each GET and HEAD.
        put: path and body of each PUT.
        deletes: whether tags can be deleted.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.tokens: list[str] = []
        self.scheme = ""
        self.asked: list[tuple[str, str | None]] = []
        self.put: list[tuple[str, bytes]] = []
        self.deletes = True

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    @cached_property
    def client(self) -> Client:
        return Client(Repository(self.host, "fleet/tiny"))

    def have(self, tag: str, content: bytes) -> None:
        """Store a manifest or an index under a tag and under its digest."""
        for reference in (tag, digest_of(content)):
            self.reply[f"{ROOT}/{reference}"] = (200, {}, content)

    def has(self, tag: str) -> str | None:
        """Return the digest of what has the tag; None if it is free."""
        found = self.reply.get(f"{ROOT}/{tag}")
        return found and digest_of(found[2])

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing about clients that try TLS."""


class _Handler(BaseHTTPRequestHandler):
    server: Harbour

    def log_message(self, *args: object) -> None:
        """Print no log lines."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.put.append((self.path, body))
        self.server.have(self.path.rpartition("/")[2], body)
        self._send(201, {}, b"")

    def do_DELETE(self) -> None:
        if self.server.deletes:
            self.server.reply.pop(self.path, None)
        self._send(202 if self.server.deletes else 405, {}, b"")

    def _answer(self) -> None:
        server, given = self.server, self.headers.get("Authorization")
        server.asked.append((self.path, given))
        if self.path.startswith("/token"):
            server.tokens.append(f"token{len(server.tokens)}")
            return self._send(200, {}, json.dumps({"token": server.tokens[-1]}).encode())
        wanted = {"basic": f"Basic {BASIC}", "bearer": f"Bearer {(server.tokens or [''])[-1]}"}
        if server.scheme and given != wanted[server.scheme.split()[0].lower()]:
            return self._send(401, {"WWW-Authenticate": server.scheme}, b"")
        return self._send(*server.reply.get(self.path, (404, {}, b"{}")))

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def serving() -> AbstractContextManager[Harbour]:
    """Return a context in which a new server runs."""
    return in_thread(Harbour())


def index(**members: bytes) -> bytes:
    """Return an index of manifests, by architecture."""
    return json.dumps({"manifests": [
        {"mediaType": "m", "digest": digest_of(content), "size": len(content),
         "platform": {"os": "linux", "architecture": architecture}}
        for architecture, content in members.items()
    ]}).encode()


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
