"""HTTP requests with verified certificates and with limits on redirects, size and time.

Any server may be faulty or hostile. Each request ends with an answer or a
`requests.RequestException` within a known time.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
import truststore
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError

from trimaran import __version__
from trimaran.terminal_safety import excerpt

CONNECT_SECONDS = 6.0  # a resolver repeats its request after 5 s if a packet was lost
"""Total time limit in seconds for resolving a host name and connecting to the host."""

READ_SECONDS = 15.0
"""Seconds without a received byte after which a transfer counts as stalled."""

ANSWER_SECONDS = 60.0
"""Time limit in seconds for a complete answer with redirects and logins, or for the headers of a
download."""

REDIRECTS = 5
"""Maximum number of redirects in a row."""

NAMED = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Environment variables that name a file of certificates, to replace the system's certificates."""

_LONGEST_NUMBER = 15  # digits; enough for a petabyte
_CHUNK = 64 * 1024

Found = TypeVar("Found")


@dataclass(frozen=True)
class Answer:
    """A complete response to an HTTP request.

    Attributes:
        url: the address after all redirects.
    """

    url: str
    status: int
    phrase: str
    headers: requests.structures.CaseInsensitiveDict[str]
    content: bytes


class _System(HTTPAdapter):
    """An HTTP adapter that trusts the certificates of the system and of the package certifi.

    The certificates of the system are in its store, or in the file $SSL_CERT_FILE.
    """

    def __init__(self) -> None:
        self.context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        super().__init__()

    def init_poolmanager(self, *words: Any, **options: Any) -> Any:
        """Pass the TLS context to direct connections."""
        return super().init_poolmanager(*words, ssl_context=self.context, **options)

    def proxy_manager_for(self, proxy: Any, **options: Any) -> Any:
        """Pass the TLS context to connections through a proxy."""
        return super().proxy_manager_for(proxy, ssl_context=self.context, **options)


class _Session(requests.Session):
    """A session that follows no redirects.

    The library requests would read the whole body of a redirect, even of unlimited size, and would
    follow redirects to any URL scheme.
    """

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return None, so that requests follows no redirect; `_follow` does this instead."""
        return None


def session() -> requests.Session:
    """Return an HTTP session that trusts the certificates of the system.

    If an environment variable in `NAMED` is set, the certificates in its file are trusted instead.
    """
    opened = _Session()
    opened.headers["User-Agent"] = f"trimaran/{__version__}"
    if not any(os.environ.get(name) for name in NAMED):
        opened.mount("https://", _System())
    return opened


def ask(asking: requests.Session, url: str, headers: dict[str, str]) -> requests.Response:
    """Send a GET request, and return the response when its headers have arrived, without its body.

    Raises:
        RequestException: there is no answer, or a redirect leads to a forbidden address.
    """
    return within(ANSWER_SECONDS, lambda: _follow(asking, "GET", url, headers, None, None, None))


def answer(
    url: str, *, most: int, asking: requests.Session | None = None, method: str = "GET",
    headers: dict[str, str] | None = None, params: dict[str, str] | None = None, auth: Any = None,
    body: bytes | None = None, seconds: float = ANSWER_SECONDS,
) -> Answer:
    """Send a request and return the complete answer.

    Args:
        url: the address.
        most: maximum size of the decompressed body in bytes.
        asking: the session (None: a new session).
        method: the HTTP method.
        headers: additional headers.
        params: parameters of the query.
        auth: the login, in a form that the library requests accepts.
        body: the body of the request.
        seconds: time limit.

    Raises:
        RequestException: there is no answer, or it exceeds `most` or `seconds`.
    """
    def read() -> Answer:
        with (
            nullcontext(asking) if asking else session() as opened,
            _follow(opened, method, url, headers, params, auth, body) as response,
        ):
            content = bytearray()
            for chunk in response.iter_content(_CHUNK):
                content += chunk
                if len(content) > most:
                    raise requests.exceptions.ContentDecodingError(
                        f"sends more than {most:,} bytes"
                    )
            return Answer(
                str(response.url), response.status_code, phrase(response), response.headers,
                bytes(content),
            )

    return within(seconds, read)


def length(headers: requests.structures.CaseInsensitiveDict[str]) -> int | None:
    """Return the number of bytes in `Content-Length`, or None if it is not a valid number."""
    digits = headers.get("Content-Length", "")
    sound = digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER
    return int(digits) if sound else None


def phrase(response: requests.Response) -> str:
    """Return the HTTP status for a message, such as `HTTP 404 Not Found`."""
    return f"HTTP {response.status_code} {(response.reason or '')[:80]}".rstrip()


def origin(url: str) -> tuple[str, str]:
    """Return the scheme and the host with port of `url`; a login is sent only to this origin."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def within(seconds: float, work: Callable[[], Found]) -> Found:
    """Return the result of `work`, which runs in a thread; abandon the thread after `seconds`.

    The timeout of a socket restarts with each byte, so a slow server could block for ever.

    Raises:
        ReadTimeout: `work` takes longer than `seconds`.
        Exception: an exception that `work` raises.
    """
    outcome: Future[Found] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    # Python would wait for the threads of an executor when it exits.
    threading.Thread(target=run, daemon=True).start()
    if not wait([outcome], seconds).done:
        raise requests.ReadTimeout(f"no complete answer within {seconds:g} s")
    return outcome.result()


class _Nobody(AuthBase):
    """A login handler that sends no login.

    Without a handler, the library requests would read logins from ~/.netrc.
    """

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


NOBODY = _Nobody()


def _follow(
    asking: requests.Session, method: str, url: str, headers: dict[str, str] | None,
    params: dict[str, str] | None, auth: Any, body: bytes | None,
) -> requests.Response:
    try:
        first = origin(url)
        for _ in range(REDIRECTS + 1):
            response = asking.request(
                method, url, headers=headers, params=params, auth=auth, data=body, stream=True,
                timeout=(CONNECT_SECONDS, READ_SECONDS), allow_redirects=False,
            )
            if not response.is_redirect:
                return response
            response.close()
            url, params = _target(str(response.url), response.headers["Location"]), None
            if origin(url) != first:  # never send the login to another host
                auth = NOBODY
    except requests.RequestException:
        raise
    except (HTTPError, OSError, ValueError) as error:  # for example an invalid address
        raise requests.exceptions.InvalidURL(str(error)) from error
    raise requests.TooManyRedirects(f"redirects more than {REDIRECTS} times")


def _target(url: str, location: str) -> str:
    target = urljoin(url, location)
    scheme, host = origin(target)
    if scheme not in ("https", origin(url)[0]) or not host:
        raise requests.exceptions.InvalidURL(
            f"redirects to {excerpt(location)}, which is not allowed"
        )
    return target
