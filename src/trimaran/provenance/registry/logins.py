"""Find the registry logins of `apptainer registry login`, `podman login` and `docker login`.

Trimaran neither asks for passwords nor stores them. A login is sent in the header of a request, or
the path of its file is passed to the engine. It never becomes an argument or part of a message.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from trimaran import paths, process
from trimaran.errors import UsageError
from trimaran.parsing import parse_json

DOCKER_HUB = {"docker.io": "index.docker.io"}
"""Registry -> its name in files of logins, where the two differ."""


_Helper = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$")]
"""The part of a program's name after `docker-credential-`."""


@dataclass(frozen=True)
class Login:
    """A login to a registry.

    Attributes:
        file: path of its file, whose format Docker, Apptainer and Podman share.
        basic: value of the header `Authorization`.
    """

    file: Path
    basic: str = field(repr=False)


class _Entry(BaseModel):
    auth: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/=_-]*$")] | None = None


class _Config(BaseModel):
    """The used keys of a file of logins, in Docker's format."""

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
        # Older releases use the first name.
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
