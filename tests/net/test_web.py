"""Any answer of a server is returned or raises RequestException, within limits of time and size."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

import hostile
from rawserver import RawServer, Reply, endless, ok, serving
from trimaran.net import web

# A server that is cut off leaves a socket of urllib3's to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("collected_sockets"),
]

MOST = 100_000
ZEROS = gzip.compress(bytes(200 * 1000 * 1000), 1)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def server() -> Iterator[RawServer]:
    with serving() as found:
        yield found


def moved(location: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: {location}\r\n\r\n".encode(
        "utf-8", "surrogateescape"
    )


def asked(server: RawServer, method: str = "GET") -> web.Answer:
    return web.answer(f"http://{server.host}/a", method=method, most=MOST)


def test_an_answer_is_read_whole(server: RawServer) -> None:
    server.reply = ok(b"body")
    found = asked(server)
    assert (found.status, found.phrase, found.content) == (200, "HTTP 200 OK", b"body")
    assert found.url == f"http://{server.host}/a"
    assert "User-Agent: trimaran/" in server.asked[0]


HEAD = b"HTTP/1.1 200 OK\r\n"

SPOILED: dict[str, Reply] = {
    "endless": endless(HEAD + b"\r\n", b"x" * 65536),
    "endless chunks": endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"4\r\nxxxx\r\n" * 999),
    "unpacks to 200 MB": ok(ZEROS, "Content-Encoding: gzip"),
    "no gzip": ok(b"x" * 99, "Content-Encoding: gzip"),
    "no chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nxxxx\r\n",
    "two lengths": ok(b"xxxxx", length="5, 6"),
    "cut off": ok(b"x", length="5"),
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "no status": b"HTTP/1.1 zz\r\n\r\n",
    "a long header": HEAD + b"A: " + b"x" * 99_999 + b"\r\n\r\n",
    "many headers": HEAD + b"A: b\r\n" * 999 + b"\r\n",
    "in circles": moved("/a"),
    "to no address": moved("http://["),
    "to a file": moved("file:///etc/passwd"),
    "to another scheme": moved("gopher://127.0.0.1/a"),
    "to no port": moved("http://127.0.0.1:zz/"),
    "to no name": moved("http:///a"),
    "to a name that is too long": moved(f"http://{'a' * 300}.invalid/"),
    "to bytes": moved("http://\udcff\udcfe/"),
    "a redirect without end": endless(
        b"HTTP/1.1 302 Found\r\nLocation: /a\r\n\r\n", b"x" * 65536
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_no_answer_is_refused(server: RawServer, name: str) -> None:
    server.reply = SPOILED[name]
    begin = time.monotonic()
    with pytest.raises(requests.RequestException):
        asked(server)
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("text", ["zz", "-5", "9" * 30, "1e3", "٣"])
def test_a_length_that_is_none_is_not_believed(server: RawServer, text: str) -> None:
    server.reply = HEAD + f"Content-Length: {text}\r\n\r\n".encode()
    assert web.length(asked(server, "HEAD").headers) is None


@pytest.mark.parametrize("reply", [
    endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    endless(HEAD, b"A"),
    lambda path: iter(lambda: time.sleep(0.05) or b"x", None),
    lambda path: iter([HEAD, b"Content-Length: 99999\r\n\r\n", *(
        part for _ in range(100) for part in (b"x",)
    )]),
], ids=["goes on", "long line", "slowly", "stops"])
def test_no_server_can_keep_us(
    server: RawServer, monkeypatch: pytest.MonkeyPatch, reply: Reply
) -> None:
    server.reply = reply
    begin = time.monotonic()
    with pytest.raises(requests.RequestException):
        web.answer(f"http://{server.host}/a", most=MOST, seconds=0.5)
    assert time.monotonic() - begin < 30


def test_the_head_of_a_download_has_a_limit_of_time(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "ANSWER_SECONDS", 0.3)
    server.reply = endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n")
    with web.session() as session, pytest.raises(requests.ReadTimeout):
        web.ask(session, f"http://{server.host}/a", {})


def test_a_login_does_not_follow_to_another_host(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as other:
        other.reply = ok(b"there")
        server.reply = moved(f"http://{other.host}/b")
        found = web.answer(f"http://{server.host}/a", most=MOST, auth=("sailor", "secret"))
        assert found.content == b"there"
        assert "Authorization: Basic" in server.asked[0]
        assert "Authorization" not in other.asked[0]


def test_tls_is_not_given_up_on_the_way() -> None:
    assert web._target("http://a.example/x", "https://b.example/y") == "https://b.example/y"
    assert web._target("https://a.example/x", "../y") == "https://a.example/y"
    with pytest.raises(requests.exceptions.InvalidURL, match=r"http://a\.example"):
        web._target("https://a.example/x", "http://a.example/y")


@settings(hostile.quick, max_examples=25)
@given(st.lists(st.one_of(
    st.sampled_from([HEAD, b"\r\n", b"Content-Length: 5\r\n", b"Location: ", b"HTTP/1.1 302 \r\n",
                     b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: deflate\r\n", b": "]),
    st.binary(max_size=6),
), max_size=8))
def test_any_bytes_are_an_answer_or_refused(server: RawServer, parts: list[bytes]) -> None:
    server.reply = b"".join(parts)
    with suppress(requests.RequestException):
        assert asked(server).phrase


def test_named_certificates_are_trusted_instead_of_the_systems(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in web.NAMED:
        monkeypatch.delenv(name, raising=False)
    assert isinstance(web.session().get_adapter("https://a.example"), web._System)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/a/b.pem")
    assert not isinstance(web.session().get_adapter("https://a.example"), web._System)
    with pytest.raises(requests.RequestException, match=r"b\.pem"):
        web.answer("https://localhost:1/", most=MOST)
