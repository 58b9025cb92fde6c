"""Run an HTTP server that sends given bytes, even malformed or endless replies."""

from __future__ import annotations

import socket
import socketserver
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import repeat

from serverthread import in_thread

Reply = bytes | Callable[[str], "bytes | Iterator[bytes]"]
"""The bytes of a reply, or a function that returns them for the path of a request."""


class RawServer(socketserver.ThreadingTCPServer):
    """A server that sends `reply` to each client, and adds each request's header to `asked`."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: Reply = b""
        self.asked: list[str] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print no error when a client closes the connection."""


class _Handler(socketserver.BaseRequestHandler):
    server: RawServer

    def handle(self) -> None:
        head = self.request.recv(65536)
        if not head.startswith((b"GET", b"HEAD")):
            return  # the client attempts TLS
        self.server.asked.append(head.decode("latin-1"))
        reply = self.server.reply
        if callable(reply):
            reply = reply(head.split()[1].decode("latin-1"))
        with suppress(OSError):
            for part in [reply] if isinstance(reply, bytes) else reply:
                self.request.sendall(part)
            self.request.shutdown(socket.SHUT_WR)


def serving() -> AbstractContextManager[RawServer]:
    """Return a context in which a new server runs."""
    return in_thread(RawServer())


def ok(body: bytes = b"", *headers: str, length: str | None = None) -> bytes:
    """Return a reply with status 200."""
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {length or len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def endless(head: bytes, part: bytes) -> Callable[[str], Iterator[bytes]]:
    """Return an endless reply: `head`, followed by repetitions of `part`."""
    def reply(path: str) -> Iterator[bytes]:
        yield head
        yield from repeat(part)

    return reply
