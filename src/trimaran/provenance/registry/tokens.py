"""Authenticate at a registry: by the login, or by a token that the registry issues."""

from __future__ import annotations

from typing import Any

import requests
from pydantic import BaseModel, Field
from requests.auth import AuthBase
from requests.utils import parse_dict_header

from trimaran.net import web
from trimaran.parsing import parse_json
from trimaran.provenance.registry.logins import Login
from trimaran.terminal_safety import excerpt

TOKEN_BYTES = 64 * 1024
"""Largest accepted size of the answer of a token server, in bytes."""


class _Token(BaseModel):
    """The used keys of an answer with a token, which becomes part of a header."""

    token: str | None = Field(default=None, pattern=r"^[\x21-\x7e]+$")
    access_token: str | None = Field(default=None, pattern=r"^[\x21-\x7e]+$")


class Authorization(AuthBase):
    """Answers the challenge of a registry, with the login or with a token that the registry issues.

    A token expires after some minutes; a longer download is challenged again.
    """

    def __init__(self, root: str, login: Login | None) -> None:
        self.origin = web.origin(root)
        self.basic = login.basic if login else None
        self.value: str | None = None

    def __call__(self, request: Any) -> Any:
        """Add the header from the last challenge, and register the answer to the next one."""
        if self.value:
            request.headers["Authorization"] = self.value
        request.register_hook("response", self._answer)
        return request

    def _answer(self, response: requests.Response, **options: Any) -> requests.Response:
        # A registry may redirect to another host; the login must not be sent to it.
        if response.status_code != 401 or web.origin(response.url) != self.origin:
            return response
        self.value = self._meet(response.headers.get("WWW-Authenticate", ""))
        if self.value is None:
            return response
        response.close()
        again = response.request.copy()
        again.headers["Authorization"] = self.value
        answer: requests.Response = response.connection.send(again, **options)
        answer.history.append(response)
        answer.request = again
        return answer

    def _meet(self, challenge: str) -> str | None:
        """Return the header that answers a challenge, or None if there is no login for it."""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            return self.basic
        asked: dict[str, Any] = parse_dict_header(rest)  # type: ignore[no-untyped-call]
        realm = str(asked.get("realm") or "")
        if scheme.lower() != "bearer" or web.origin(realm)[0] not in ("https", self.origin[0]):
            return None
        answer = web.answer(
            realm, most=TOKEN_BYTES, auth=self._log_in,
            params={key: str(asked[key]) for key in ("service", "scope") if key in asked},
        )
        if answer.status != 200:
            return None
        token = _token(answer.content)
        if token is None:
            raise requests.exceptions.InvalidHeader(f"{excerpt(realm)} returned no token")
        return f"Bearer {token}"

    def _log_in(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        # requests reads ~/.netrc unless a function is given, even without a login.
        if self.basic:
            request.headers["Authorization"] = self.basic
        return request


def _token(content: bytes) -> str | None:
    try:
        found = _Token.model_validate(parse_json(content))
    except ValueError:  # the text of a ValidationError would contain the token
        return None
    return found.token or found.access_token
