"""Transfer the bytes of a URL into an open file, resume transfers, and give up on dead hosts.

The module does not check the bytes; `download` does.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests
from requests.utils import get_environ_proxies, select_proxy
from urllib3.exceptions import HTTPError, ReadTimeoutError

from trimaran.errors import causes
from trimaran.net import web
from trimaran.reporting import Advance, Reporter
from trimaran.terminal_safety import excerpt

ATTEMPTS = 4
"""Maximum number of successive attempts in which less than one chunk of data arrives.

After these attempts, the source counts as failed."""

REMEMBER_SECONDS = 60.0
"""Seconds for which a failed host is not tried again, so that further files do not wait for it."""

CHUNK = 64 * 1024
EXCESS = 1024 * 1024  # a source that exceeds the known size by this many bytes is given up


class SourceFailed(Exception):  # noqa: N818 - an outcome that the caller always handles
    """The error that a source cannot provide the file; the message is the reason."""


class SourceSilent(SourceFailed):
    """The error that the host of a source did not answer; the problem may be temporary."""


_dead_hosts: dict[tuple[str, int], tuple[float, SourceFailed]] = {}


class _Broken(Exception):  # noqa: N818 - an outcome, as SourceFailed
    """The error that the transfer was interrupted; another attempt may succeed."""


class _Stale(_Broken):
    """The error that the bytes on disk belong to another file, so that the transfer starts again.

    This error does not count as one of the failed `ATTEMPTS`.
    """


def is_remote(url: str) -> bool:
    """Return True if reading `url` requires the network."""
    return urlsplit(url).scheme in ("http", "https")


def place(url: str) -> str:
    """Return the name of a source for messages: the host of `url`, or the path of a local file."""
    return urlsplit(url).netloc.rpartition("@")[2] if is_remote(url) else str(_local(url))


def transfer(
    url: str, part: IO[bytes], *, name: str, size: int | None, reporter: Reporter,
    session: requests.Session | None = None,
) -> bool:
    """Append the missing bytes of the file at `url` to `part`, which is opened with mode "ab".

    If a server ignores the range, or its file changed between two attempts, the transfer
    starts again from the first byte.

    Args:
        url: http(s) or file URL, or plain path.
        part: the open file.
        name: name of the file in messages.
        size: size of the whole file in bytes (None: unknown).
        reporter: shows a progress bar, and a note for each interruption.
        session: sends the requests, for servers that need a login (None: a new session).

    Returns:
        True if `part` still contains bytes from before the call.

    Raises:
        SourceFailed: the source does not provide the file.
    """
    attempt = _Attempt(url, part, name, size, reporter, _length(part) > 0)
    if not is_remote(url):
        attempt.copy()
        return False
    _require_answer(url)
    fruitless = 0
    with session or web.session() as session:
        while True:
            before = _length(part)
            try:
                attempt.receive(session)
                return attempt.kept_old_bytes
            except _Broken as problem:
                part.flush()
                gained = _length(part) - before
                if gained >= CHUNK:
                    fruitless = 0
                elif not isinstance(problem, _Stale):
                    fruitless += 1
                if fruitless >= ATTEMPTS:
                    raise SourceFailed(f"{problem} ({ATTEMPTS} attempts)") from problem
                reporter.note(f"{name}: {problem}; resuming at {_length(part):,} bytes")
                time.sleep(0.25 * 2**fruitless)


@dataclass
class _Attempt:
    """The state of one transfer over several connections."""

    url: str
    part: IO[bytes]
    name: str
    size: int | None
    reporter: Reporter
    kept_old_bytes: bool
    validator: str | None = None

    def copy(self) -> None:
        """Copy a local file from its first byte; a copy is too fast to be worth resuming."""
        try:
            with _local(self.url).open("rb") as source:
                self._start_anew()
                total = os.fstat(source.fileno()).st_size
                with self.reporter.bar(self.name, total, unit="B") as advance:
                    while chunk := source.read(CHUNK):
                        self._write(chunk, advance)
        except FileNotFoundError as problem:
            raise SourceFailed("no such file") from problem
        except (PermissionError, IsADirectoryError) as problem:
            raise SourceFailed(str(problem.strerror)) from problem
        self.part.flush()

    def receive(self, session: requests.Session) -> None:
        """Request the missing bytes once, and write the bytes that arrive."""
        offset = _length(self.part)
        with self._open(session, offset) as response:
            offset = self._accept(response, offset)
            self.validator = _validator(response)
            announced = web.length(response.headers)
            total = self.size or (None if announced is None else offset + announced)
            try:
                with self.reporter.bar(self.name, total, unit="B", done=offset) as advance:
                    # read1 returns the bytes received so far, so that a stall loses none.
                    while chunk := response.raw.read1(CHUNK, decode_content=False):
                        self._write(chunk, advance)
            except ReadTimeoutError as problem:
                raise _Broken(f"stalled for {web.READ_SECONDS:g} s") from problem
            except HTTPError as problem:
                raise _Broken("the connection dropped") from problem
            self.part.flush()
            if announced is None and self.size and _length(self.part) < self.size:
                raise _Broken("the connection ended early")

    def _open(self, session: requests.Session, offset: int) -> requests.Response:
        headers = {"Accept-Encoding": "identity"}  # a .gz must not be decompressed on the way
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if self.validator:
                headers["If-Range"] = self.validator
        try:
            return web.ask(session, self.url, headers)
        except requests.exceptions.SSLError as problem:
            raise SourceFailed(
                f"its certificate is not trusted ({innermost(problem)});"
                " pass the certificates of your site with --ca-bundle FILE or in the site file"
            ) from problem
        except requests.exceptions.ConnectTimeout as problem:
            raise SourceSilent(innermost(problem)) from problem
        except requests.exceptions.ProxyError as problem:
            raise SourceFailed(innermost(problem)) from problem
        except requests.exceptions.ReadTimeout as problem:
            raise _Broken(f"no answer for {web.READ_SECONDS:g} s") from problem
        except requests.exceptions.ConnectionError as problem:
            raise _Broken(f"the connection dropped ({innermost(problem)})") from problem
        except requests.exceptions.RequestException as problem:
            raise SourceFailed(innermost(problem)) from problem

    def _accept(self, response: requests.Response, offset: int) -> int:
        """Check the HTTP status, and return the position in the file of the first received byte."""
        status = response.status_code
        if status == 206 and response.headers.get("Content-Range", "").startswith(
            f"bytes {offset}-"
        ):
            return offset
        if status == 200:
            self._start_anew()
            return 0
        if status in (206, 416) and offset:
            self._start_anew()
            raise _Stale("the file on the server has another length, starting again")
        if status in (408, 429) or status >= 500:
            raise _Broken(web.phrase(response))
        raise SourceFailed(web.phrase(response))

    def _start_anew(self) -> None:
        self.part.truncate(0)
        self.kept_old_bytes = False

    def _write(self, chunk: bytes, advance: Advance) -> None:
        self.part.write(chunk)
        advance(len(chunk))
        if self.size is not None and self.part.tell() > self.size + EXCESS:
            raise SourceFailed(f"sends more than the expected {self.size:,} bytes")


def _length(part: IO[bytes]) -> int:
    part.flush()
    return os.fstat(part.fileno()).st_size


def _local(url: str) -> Path:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return Path(os.path.expanduser(url))  # noqa: PTH111 - as in site_file.py


def _validator(response: requests.Response) -> str | None:
    """Return the value for the header If-Range: a strong ETag, or else the Last-Modified date.

    See RFC 9110, 13.1.5.
    """
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified")


def innermost(problem: BaseException) -> str:
    """Return the message of the first cause of `problem`; libraries wrap a cause several times."""
    *_, first = causes(problem)
    return (first.strerror if isinstance(first, OSError) else None) or str(first)


def _require_answer(url: str) -> None:
    """Raise SourceFailed unless the host (or the proxy in front of it) accepts a connection.

    The timeout of a socket applies to each address of a host, and not to the resolution of its
    name: eight dead addresses, or a name server behind a closed firewall, would take half a
    minute and more. `web.within` limits the total time.
    """
    proxy = select_proxy(url, get_environ_proxies(url, no_proxy=None))
    door = url if not proxy else proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(door)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as problem:
        what = f"the proxy {excerpt(proxy)}" if proxy else excerpt(url)
        raise SourceFailed(f"{what} is not an address: {problem}") from problem
    when, before = _dead_hosts.get((host, port), (float("-inf"), SourceFailed()))
    if time.monotonic() - when < REMEMBER_SECONDS:
        raise type(before)(f"{before} (a moment ago)")

    try:
        web.within(web.CONNECT_SECONDS, lambda: _knock(host, port))
        return
    except requests.ReadTimeout:
        failure: SourceFailed = SourceSilent(
            f"{host} does not answer within {web.CONNECT_SECONDS:g} s"
        )
    except (socket.gaierror, UnicodeError):
        failure = SourceFailed(f"the name '{host}' does not resolve")
    except OSError as problem:
        failure = SourceFailed(f"{host}:{port}: {problem.strerror or problem}".lower())
    _dead_hosts[host, port] = (time.monotonic(), failure)
    raise failure


def ask_again() -> None:
    """Allow hosts that did not answer to be tried again at once."""
    for door, (_when, failure) in list(_dead_hosts.items()):
        if isinstance(failure, SourceSilent):
            _dead_hosts.pop(door, None)


def _knock(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=web.CONNECT_SECONDS).close()
