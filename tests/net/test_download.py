"""Downloads from a real HTTP server that misbehaves in the ways of servers and networks."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import random
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refusals import refused
from serverthread import in_thread
from trimaran.errors import BuildError, Interrupted
from trimaran.net import download, transfer, web
from trimaran.net.download import fetch
from trimaran.reporting import Advance, Silent

CONTENT = random.Random(2).randbytes(300_000)  # noqa: S311 - test bytes, no secret
SHA = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Script:
    """The behaviour of the server in each request, in order; the last entry is repeated."""

    content: bytes = CONTENT
    acts: list[str] = field(default_factory=lambda: ["ranges"])
    etags: list[str] = field(default_factory=lambda: ['"one"'])
    seen: list[dict[str, str]] = field(default_factory=list)
    cut: int = 100_000


class Handler(BaseHTTPRequestHandler):
    """A request handler that behaves as the `script` of its server specifies."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *args: object) -> None:
        """Print no log lines."""

    def do_GET(self) -> None:
        script = self.server.script
        number = len(script.seen)
        script.seen.append(dict(self.headers))
        act = script.acts[min(number, len(script.acts) - 1)]
        etag = script.etags[min(number, len(script.etags) - 1)]
        self.close_connection = True
        if act.isdigit():
            self.send_response(int(act))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if act == "silent":
            self.server.released.wait(5)
            return
        if act == "redirect":
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._body(act, etag)

    def _body(self, act: str, etag: str) -> None:
        script = self.server.script
        start = 0
        wanted = self.headers.get("Range")
        condition = self.headers.get("If-Range")
        if wanted and act != "no-ranges" and condition in (None, etag):
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(script.content):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header(
                "Content-Range", f"bytes {start}-{len(script.content) - 1}/{len(script.content)}"
            )
        else:
            self.send_response(200)
        body = script.content[start:]
        if act != "no-length":
            self.send_header("Content-Length", str(len(body)))
        if act == "gzip-marked":
            self.send_header("Content-Encoding", "x-gzip")
        self.send_header("ETag", etag)
        self.end_headers()
        if act in ("drop", "no-length"):
            body = body[: script.cut]
        if act == "stall":
            self.wfile.write(body[: script.cut])
            self.server.released.wait(5)
            return
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """A server on a free loopback port."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print no error when a client closes the connection."""


@contextmanager
def serving(**script: Any) -> Iterator[Server]:
    with in_thread(Server(Script(**script))) as server:
        try:
            yield server
        finally:
            server.released.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits, forget unreachable hosts of other tests, and use no proxy."""
    monkeypatch.setattr(web, "READ_SECONDS", 0.2)
    monkeypatch.setattr(web, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(download, "PATIENCE", ())
    monkeypatch.setattr(transfer.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(transfer, "_dead_hosts", {})
    monkeypatch.setenv("NO_PROXY", "*")


Get = Callable[..., Path]


@pytest.fixture
def told() -> Silent:
    return Silent()


@pytest.fixture
def get(tmp_path: Path, told: Silent) -> Get:
    def call(*urls: str, **options: Any) -> Path:
        arguments: dict[str, Any] = {
            "sha256": SHA, "size": len(CONTENT), "offline": False, "reporter": told,
        }
        return fetch(list(urls), tmp_path / "cache/file.bin", **(arguments | options))

    return call


def folder(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache").iterdir())


def test_file_is_fetched_verified_and_alone(tmp_path: Path, get: Get) -> None:
    with serving() as server:
        assert get(server.url).read_bytes() == CONTENT
    assert folder(tmp_path) == ["file.bin"]
    assert server.script.seen[0]["Accept-Encoding"] == "identity"


def test_file_that_is_there_needs_no_source(get: Get, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/file.bin").write_bytes(CONTENT)
    assert get("http://unused.invalid/file.bin").read_bytes() == CONTENT


def test_file_of_another_process_that_comes_at_the_last_moment_is_taken(
    get: Get, tmp_path: Path, told: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another process writes the file just before the download, that file is used."""
    (tmp_path / "cache").mkdir()
    known = Path.is_file

    def comes_after(path: Path) -> bool:
        there = known(path)
        if path.name == "file.bin":
            path.write_bytes(CONTENT)
        return there

    monkeypatch.setattr(Path, "is_file", comes_after)
    with serving() as server:
        assert get(server.url).read_bytes() == CONTENT
    assert (folder(tmp_path), told.warnings) == (["file.bin"], [])


def test_damaged_file_is_set_aside_and_fetched_again(
    get: Get, tmp_path: Path, told: Silent
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/file.bin").write_bytes(b"damaged")
    with serving() as server:
        assert get(server.url).read_bytes() == CONTENT
    found = hashlib.sha256(b"damaged").hexdigest()
    assert folder(tmp_path) == ["file.bin", f"file.bin.refused-{found[:8]}"]
    assert SHA in told.warnings[0]
    assert found in told.warnings[0]


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_part_is_resumed(get: Get, tmp_path: Path, size: int | None) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/file.bin.part").write_bytes(CONTENT[:123_456])
    with serving() as server:
        assert get(server.url, size=size).read_bytes() == CONTENT
    assert [headers.get("Range") for headers in server.script.seen] == ["bytes=123456-"]


def test_whole_part_needs_no_source(get: Get, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/file.bin.part").write_bytes(CONTENT)
    assert get(offline=True).read_bytes() == CONTENT
    assert folder(tmp_path) == ["file.bin"]


def test_server_that_ignores_ranges_restarts_cleanly(get: Get, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/file.bin.part").write_bytes(CONTENT[:1000])
    with serving(acts=["no-ranges"]) as server:
        assert get(server.url).read_bytes() == CONTENT
    assert len(server.script.seen) == 1


@pytest.mark.parametrize("stale", [b"stale" * 100, bytes(len(CONTENT)), bytes(len(CONTENT) + 9)])
def test_part_of_something_else_is_started_anew(get: Get, tmp_path: Path, stale: bytes) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/file.bin.part").write_bytes(stale)
    with serving() as server:
        assert get(server.url).read_bytes() == CONTENT
    assert folder(tmp_path) == ["file.bin"]


@pytest.mark.parametrize("act", ["drop", "stall", "no-length"])
def test_broken_transfer_goes_on_where_it_broke(get: Get, told: Silent, act: str) -> None:
    with serving(acts=[act, "ranges"]) as server:
        assert get(server.url).read_bytes() == CONTENT
    assert server.script.seen[1]["Range"] == "bytes=100000-"
    assert server.script.seen[1]["If-Range"] == '"one"'
    assert "resuming at 100,000 bytes" in told.notes[0]


def test_file_changed_between_attempts_is_not_mixed(get: Get) -> None:
    with serving(acts=["drop", "ranges"], etags=['"one"', '"two"']) as server:
        assert get(server.url).read_bytes() == CONTENT
    assert len(server.script.seen) == 2


def test_server_error_is_tried_again_and_missing_file_is_not(get: Get, told: Silent) -> None:
    with serving(acts=["503", "redirect", "ranges"]) as good, serving(acts=["404"]) as bad:
        assert get(bad.url, good.url).read_bytes() == CONTENT
    assert len(bad.script.seen) == 1
    assert "HTTP 404 Not Found; trying 127.0.0.1" in told.warnings[0]


def test_bytes_come_as_they_lie_even_when_marked_compressed(get: Get) -> None:
    with serving(acts=["gzip-marked"]) as server:
        assert get(server.url).read_bytes() == CONTENT


@pytest.mark.parametrize("act", ["silent", "stall"])
def test_source_that_goes_on_failing_is_given_up(get: Get, act: str, tmp_path: Path) -> None:
    with serving(acts=[act], cut=10) as server, refused(
        "download-failed", f"({transfer.ATTEMPTS} attempts)"
    ):
        get(server.url)
    assert len(server.script.seen) == transfer.ATTEMPTS
    assert folder(tmp_path) == ([] if act == "silent" else ["file.bin.part"])


def test_wrong_content_is_refused_with_both_hashes_and_kept(
    get: Get, told: Silent, tmp_path: Path
) -> None:
    other = b"x" * len(CONTENT)
    found = hashlib.sha256(other).hexdigest()
    with serving(content=other) as bad, serving() as good:
        assert get(bad.url, good.url).read_bytes() == CONTENT
    assert SHA in told.warnings[0]
    assert found in told.warnings[0]
    assert (tmp_path / f"cache/file.bin.refused-{found[:8]}").read_bytes() == other


def test_endless_source_is_cut_off(get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "EXCESS", 1000)
    with serving(content=CONTENT * 3) as server, refused(
        "download-failed", f"{len(CONTENT):,} bytes"
    ):
        get(server.url)


def test_all_failures_are_listed_in_the_error_of_the_caller(get: Get, tmp_path: Path) -> None:
    with serving(acts=["404"]) as server, refused(
        "download-failed", server.url, tmp_path / "nowhere", "no such file", kind=BuildError
    ) as caught:
        get(server.url, str(tmp_path / "nowhere"), error=BuildError)
    assert str(tmp_path / "cache/file.bin") in (caught.value.hint or "")


def test_unknown_name_is_given_up_at_once(get: Get, told: Silent) -> None:
    with serving() as server:
        started = time.monotonic()
        get("http://no-such-host.invalid/file.bin", server.url)
        assert time.monotonic() - started < 18
    assert "the name 'no-such-host.invalid' does not resolve" in told.warnings[0]


def test_refused_connection_is_given_up_and_remembered(get: Get, told: Silent) -> None:
    with socket.socket() as reserved, serving() as server:
        reserved.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        dead = f"http://127.0.0.1:{reserved.getsockname()[1]}/a"
        get(dead, dead, server.url)
    assert "connection refused" in told.warnings[0]
    assert "(a moment ago)" in told.warnings[1]


def test_silent_host_and_slow_resolver_end_in_time(
    get: Get, monkeypatch: pytest.MonkeyPatch, told: Silent
) -> None:
    release = threading.Event()
    monkeypatch.setattr(transfer, "_knock", lambda host, port: release.wait(5))
    monkeypatch.setattr(download, "PATIENCE", (0.1,))
    with serving() as server:
        started = time.monotonic()
        with refused("download-failed", "0.5 s"):
            get(server.url)
        assert time.monotonic() - started < 4.5
    release.set()


def test_a_network_that_comes_back_is_waited_for(
    get: Get, monkeypatch: pytest.MonkeyPatch, told: Silent
) -> None:
    monkeypatch.setattr(download, "PATIENCE", (0.1, 0.1))
    knock, knocks, release = transfer._knock, [], threading.Event()

    def deaf_at_first(host: str, port: int) -> None:
        knocks.append(host)
        if len(knocks) > 2:
            knock(host, port)
        else:
            release.wait(5)

    monkeypatch.setattr(transfer, "_knock", deaf_at_first)
    with serving() as server:
        assert get(server.url, server.url).read_bytes() == CONTENT
    assert len(knocks) == 3, "the second source's host was known to be silent"
    assert told.notes.count("file.bin: trying again in 0.1 s") == 2
    release.set()


def test_proxy_is_knocked_at_instead_of_the_host(
    get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy", raising=False)
    with serving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/file.bin"))
        assert get("http://behind.invalid/file.bin").read_bytes() == CONTENT


def test_offline_uses_only_local_sources(get: Get, tmp_path: Path) -> None:
    local = tmp_path / "with space.bin"
    local.write_bytes(CONTENT)
    with serving() as server:
        assert get(server.url, local.as_uri(), offline=True).read_bytes() == CONTENT
    assert server.script.seen == []


def test_offline_says_what_is_missing_and_how_to_get_it(get: Get, tmp_path: Path) -> None:
    with serving() as server, refused("download-offline", "file.bin") as caught:
        get(server.url, offline=True)
    hint = caught.value.hint or ""
    assert server.url in hint
    assert SHA in hint
    assert str(tmp_path / "cache/file.bin") in hint
    assert server.script.seen == []


def test_plain_path_is_a_source(get: Get, tmp_path: Path) -> None:
    (tmp_path / "local.bin").write_bytes(CONTENT)
    assert get(str(tmp_path / "local.bin")).read_bytes() == CONTENT


def test_no_space_is_said_before_anything_is_written(
    get: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with serving() as server, refused("disk-full", "file.bin"):
        get(server.url)
    assert server.script.seen == []
    assert folder(tmp_path) == []


def test_disk_that_fills_on_the_way_is_an_error_of_the_caller(
    get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, chunk: bytes, advance: Advance) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(transfer._Attempt, "_write", full)
    with serving() as server, refused("disk-full", "file.bin", kind=BuildError):
        get(server.url, error=BuildError)


def test_ctrl_c_keeps_the_part_and_the_next_call_resumes(
    get: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = transfer._Attempt._write

    def interrupted(self: transfer._Attempt, chunk: bytes, advance: Advance) -> None:
        write(self, chunk, advance)
        raise KeyboardInterrupt

    with serving() as server:
        with monkeypatch.context() as patch:
            patch.setattr(transfer._Attempt, "_write", interrupted)
            with pytest.raises(Interrupted, match=r"file\.bin"):
                get(server.url)
        had = (tmp_path / "cache/file.bin.part").stat().st_size
        assert 0 < had <= transfer.CHUNK
        assert get(server.url).read_bytes() == CONTENT
    assert server.script.seen[1]["Range"] == f"bytes={had}-"


def _fetch_in_child(url: str, path: str) -> None:
    fetch([url], Path(path), sha256=SHA, size=None, offline=False, reporter=Silent())


def test_two_processes_do_not_disturb_each_other(tmp_path: Path) -> None:
    with serving() as server:
        context = multiprocessing.get_context("spawn")
        path = str(tmp_path / "two/file.bin")
        children = [
            context.Process(target=_fetch_in_child, args=(server.url, path))
            for _ in range(2)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(30)
        assert [child.exitcode for child in children] == [0, 0]
    assert len(server.script.seen) == 1
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["file.bin"]


@settings(max_examples=40, deadline=None)
@example(content=b"", acts=["503"] * 3, cut=0, stale=b"\0")
@given(
    content=st.binary(max_size=300),
    acts=st.lists(st.sampled_from(["ranges", "no-ranges", "drop", "503"]), max_size=3),
    cut=st.integers(0, 300),
    stale=st.one_of(st.none(), st.binary(max_size=400), st.integers(0, 300)),
)
def test_any_mishap_ends_with_the_right_bytes(
    content: bytes, acts: list[str], cut: int, stale: bytes | int | None
) -> None:
    """After any three mishaps in a row, and with any leftover `.part`, the right file remains."""
    with tempfile.TemporaryDirectory() as name, serving(
        content=content, acts=[*acts, "ranges"], cut=cut
    ) as server:
        destination = Path(name, "file.bin")
        if stale is not None:
            leftover = content[:stale] if isinstance(stale, int) else stale
            destination.with_name("file.bin.part").write_bytes(leftover)
        fetch([server.url], destination, sha256=hashlib.sha256(content).hexdigest(),
              size=len(content), offline=False, reporter=Silent())
        assert destination.read_bytes() == content
        assert [path.name for path in Path(name).iterdir()] == ["file.bin"]


def test_bar_shows_bytes_from_where_it_resumes(get: Get, tmp_path: Path) -> None:
    shown: list[tuple[str, float | None, str, float]] = []
    counted: list[float] = []

    class Watching(Silent):
        @contextmanager
        def bar(
            self, description: str, total: float | None, *, unit: str = "", done: float = 0
        ) -> Iterator[Advance]:
            shown.append((description, total, unit, done))
            yield counted.append

    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/file.bin.part").write_bytes(CONTENT[:1000])
    with serving() as server:
        get(server.url, reporter=Watching())
    assert shown == [("file.bin", len(CONTENT), "B", 1000)]
    assert sum(counted) == len(CONTENT) - 1000


def test_open_part_is_the_callers(tmp_path: Path) -> None:
    """If the server ignores the range, `transfer` replaces the old bytes, and returns False.

    The result tells whether bytes from before the call are still in the file.
    """
    part: IO[bytes]
    with serving(acts=["no-ranges"]) as server, (tmp_path / "p").open("ab") as part:
        part.write(b"old")
        assert not transfer.transfer(server.url, part, name="p", size=None, reporter=Silent())
    assert (tmp_path / "p").read_bytes() == CONTENT
