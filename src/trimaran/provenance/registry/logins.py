"""Log in to registries with the logins of Apptainer, Podman and Docker (`… login`).

Trimaran neither asks for passwords nor stores them. A login is sent in the header of a request, or
the path of its file is passed to the engine. It never becomes an argument or part of a message.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import requests
from pydantic import BaseModel, Field
from requests.auth import AuthBase
from requests.utils import parse_dict_header

from trimaran import paths, process
from trimaran.errors import UsageError
from trimaran.net import web
from trimaran.parsing import parse_json
from trimaran.terminal_safety import excerpt

DOCKER_HUB = {"docker.io": "index.docker.io"}
"""Host in the image names of Docker Hub -> the host under which login files list its logins."""


_Helper = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$")]
"""Name of a credential helper: the part of its program's name after `docker-credential-`."""


@dataclass(frozen=True)
class Login:
    """A login to a registry.

    Attributes:
        file: path of the file with the login; Docker, Apptainer and Podman use the same format.
        basic: value of the header `Authorization`.
    """

    file: Path
    basic: str = field(repr=False)


class _Entry(BaseModel):
    auth: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/=_-]*$")] | None = None


class _Config(BaseModel):
    """The keys of a file of logins in Docker's format that Trimaran uses."""

    auths: dict[str, _Entry] = {}
    helpers: dict[str, _Helper] = Field(default={}, alias="credHelpers")
    store: _Helper | None = Field(default=None, alias="credsStore")


class _Answer(BaseModel):
    """The output of a credential helper."""

    user: str = Field(alias="Username")
    secret: str = Field(alias="Secret")


def files() -> list[Path]:
    """Return the paths of files of logins, in the order of precedence."""
    named = os.environ.get("REGISTRY_AUTH_FILE")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    config = paths.user_folder("XDG_CONFIG_HOME", ".config")
    apptainer = _folder("APPTAINER_CONFIGDIR", ".apptainer")
    docker = _folder("DOCKER_CONFIG", ".docker")
    return [
        *([Path(named)] if named else []),
        Path(f"{runtime}/containers" if runtime else f"/run/containers/{os.getuid()}", "auth.json"),
        *([config / "containers/auth.json"] if config else []),
        # Older releases of Apptainer use docker-config.json.
        *([apptainer / "docker-config.json", apptainer / "config.json"] if apptainer else []),
        *([docker / "config.json"] if docker else []),
    ]


def _folder(variable: str, below: str) -> Path | None:
    named, home = os.environ.get(variable), paths.home()
    return Path(named) if named else home and home / below


def find(host: str, repository: str) -> Login | None:
    """Return the login for `repository` at `host`, or None.

    Raises:
        UsageError: A file of logins cannot be read, or a credential helper fails.
    """
    for path in files():
        if _is_there(path) and (basic := _from_file(path, host, repository)):
            return Login(path, basic)
    return None


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:  # podman's folder may belong to root
        return False


def _from_file(path: Path, host: str, repository: str) -> str | None:
    try:
        content = _Config.model_validate(parse_json(path.read_bytes()))
    except (OSError, ValueError):
        content = None
    if content is None:
        # Neither the message nor its cause contains the text, which may be part of a password.
        raise UsageError(f"{path} cannot be read as a file of registry logins",
                         code="login-invalid",
                         hint="remove the file, and repeat the login command that wrote it")
    known = {_place(key): entry for key, entry in content.auths.items()}
    for place in _places(host, repository):
        if place in known and (basic := known[place].auth):
            return f"Basic {basic}"
    helper = content.helpers.get(host) or content.store
    return _ask_helper(helper, host, path) if helper else None


def _place(key: str) -> str:
    """Return the key of a login without the scheme and version that older clients add."""
    place = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    return place.removesuffix("/v1").removesuffix("/v2")


def _places(host: str, repository: str) -> Iterator[str]:
    """Yield the possible keys of a login, the longest first; podman's keys may include a path."""
    parts = repository.split("/")
    for count in range(len(parts), 0, -1):
        yield "/".join([host, *parts[:count]])
    yield host
    if host in DOCKER_HUB:
        yield DOCKER_HUB[host]


def _ask_helper(name: str, host: str, path: Path) -> str | None:
    program = f"docker-credential-{name}"
    server = f"https://{DOCKER_HUB[host]}/v1/" if host in DOCKER_HUB else host
    answer = process.run([program, "get"], stdin=server)
    if answer.returncode != 0:
        if "not found" in answer.stdout + answer.stderr:
            return None  # every helper prints this if it has no login for the host
        raise UsageError(f"{program}, which {path} names, ended with status {answer.returncode}",
                         code="login-invalid")
    try:
        login = _Answer.model_validate(parse_json(answer.stdout))
    except ValueError:
        login = None
    if login is None:
        raise UsageError(f"{program}, which {path} names, printed no login", code="login-invalid")
    return "Basic " + base64.b64encode(f"{login.user}:{login.secret}".encode()).decode()


TOKEN_BYTES = 64 * 1024
"""Largest accepted size of the answer of a token server, in bytes."""


class _Token(BaseModel):
    """The answer of a token server: the token is in `token` or `access_token`.

    Only printable ASCII characters are accepted, because the token is sent in an HTTP header.
    """

    token: str | None = Field(default=None, pattern=r"^[\x21-\x7e]+$")
    access_token: str | None = Field(default=None, pattern=r"^[\x21-\x7e]+$")


class Authorization(AuthBase):
    """An authorization that answers a registry's challenge with the login or an issued token.

    A token expires after some minutes; a longer download is challenged again.
    """

    def __init__(self, root: str, login: Login | None) -> None:
        self.origin = web.origin(root)
        self.basic = login.basic if login else None
        self.value: str | None = None

    def __call__(self, request: Any) -> Any:
        """Add authorization to a request to the registry.

        If an earlier challenge of the registry was answered, its answer is set as the header
        `Authorization`. A hook answers the challenge in the response, if there is one.
        """
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
