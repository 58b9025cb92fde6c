"""HTTP within limits: whom to trust, where a redirect may lead, how much and how long to listen.

The servers are others' and may be anything. Whatever one does becomes an answer or a
`requests.RequestException`, within a time that is known beforehand.
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

CONNECT_SECONDS = 6.0  # a resolver asks a second time after 5 s, when a packet was lost
"""For resolving a name and connecting, together."""

READ_SECONDS = 15.0
"""Without one byte, after which a transfer counts as stalled."""

ANSWER_SECONDS = 60.0
"""For a whole answer, redirects and logins included, or for the head of a download."""

REDIRECTS = 5
"""How many in a row are followed."""

NAMED = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name the certificates to trust instead of the usual ones."""

_LONGEST_NUMBER = 15  # digits: a petabyte
_CHUNK = 64 * 1024

Found = TypeVar("Found")


@dataclass(frozen=True)
class Answer:
    """An answer that has been read to its end.

    Attributes:
        url: which address gave it, after redirects.
    """

    url: str
    status: int
    phrase: str
    headers: requests.structures.CaseInsensitiveDict[str]
    content: bytes


class _System(HTTPAdapter):
    """Trusts what the system trusts (its store, or $SSL_CERT_FILE), and certifi's certificates."""

    def __init__(self) -> None:
        self.context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        super().__init__()

    def init_poolmanager(self, *words: Any, **options: Any) -> Any:
        """Hand the context to direct connections."""
        return super().init_poolmanager(*words, ssl_context=self.context, **options)

    def proxy_manager_for(self, proxy: Any, **options: Any) -> Any:
        """Hand the context to connections through a proxy."""
        return super().proxy_manager_for(proxy, ssl_context=self.context, **options)


class _Session(requests.Session):
    """Leaves redirects alone: requests reads the body of each, however long, and any scheme."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return None: `_follow` follows them."""
        return None


def session() -> requests.Session:
    """Return a session that trusts whom pip trusts: the system, or the certificates named."""
    opened = _Session()
    opened.headers["User-Agent"] = f"trimaran/{__version__}"
    if not any(os.environ.get(name) for name in NAMED):
        opened.mount("https://", _System())
    return opened


def ask(asking: requests.Session, url: str, headers: dict[str, str]) -> requests.Response:
    """Return the answer whose head has come; its body is still to be read.

    Raises:
        RequestException: there is none, or a redirect leads where none may.
    """
    return within(ANSWER_SECONDS, lambda: _follow(asking, "GET", url, headers, None, None))


def answer(
    url: str,
    *,
    most: int,
    asking: requests.Session | None = None,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
    auth: Any = None,
    seconds: float = ANSWER_SECONDS,
) -> Answer:
    """Return the whole answer, asked for by `asking` or a session of its own.

    Raises:
        RequestException: there is none, it is longer than `most` bytes when unpacked, or takes
            longer than `seconds`.
    """
    def read() -> Answer:
        with (
            nullcontext(asking) if asking else session() as opened,
            _follow(opened, method, url, headers, params, auth) as response,
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
    """Return what `Content-Length` says, if it is a number that a file can have."""
    digits = headers.get("Content-Length", "")
    sound = digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER
    return int(digits) if sound else None


def phrase(response: requests.Response) -> str:
    """Return the status as messages name it: `HTTP 404 Not Found`."""
    return f"HTTP {response.status_code} {(response.reason or '')[:80]}".rstrip()


def origin(url: str) -> tuple[str, str]:
    """Return whom a login for `url` is meant for: scheme and host with port."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def within(seconds: float, work: Callable[[], Found]) -> Found:
    """Return what `work` returns; a thread that takes too long is left behind.

    The timeouts of a socket begin anew with each byte, so that a server could go on for ever.

    Raises:
        ReadTimeout: it takes longer than `seconds`.
        Exception: what `work` raises.
    """
    outcome: Future[Found] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    # No executor: Python would wait for its threads at the end.
    threading.Thread(target=run, daemon=True).start()
    if not wait([outcome], seconds).done:
        raise requests.ReadTimeout(f"no whole answer within {seconds:g} s")
    return outcome.result()


class _Nobody(AuthBase):
    """Sends no login; without any, requests would look into ~/.netrc."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


NOBODY = _Nobody()


def _follow(
    asking: requests.Session,
    method: str,
    url: str,
    headers: dict[str, str] | None,
    params: dict[str, str] | None,
    auth: Any,
) -> requests.Response:
    try:
        first = origin(url)
        for _ in range(REDIRECTS + 1):
            response = asking.request(
                method, url, headers=headers, params=params, auth=auth, stream=True,
                timeout=(CONNECT_SECONDS, READ_SECONDS), allow_redirects=False,
            )
            if not response.is_redirect:
                return response
            response.close()
            url, params = _target(str(response.url), response.headers["Location"]), None
            if origin(url) != first:  # the login is none of another host's business
                auth = NOBODY
    except requests.RequestException:
        raise
    except (HTTPError, OSError, ValueError) as error:  # such as an address that is none
        raise requests.exceptions.InvalidURL(str(error)) from error
    raise requests.TooManyRedirects(f"redirects more than {REDIRECTS} times")


def _target(url: str, location: str) -> str:
    target = urljoin(url, location)
    scheme, host = origin(target)
    if scheme not in ("https", origin(url)[0]) or not host:
        raise requests.exceptions.InvalidURL(f"redirects to {excerpt(location)}, which is refused")
    return target
