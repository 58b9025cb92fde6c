"""Logins to registries, as `apptainer registry login`, `podman login` and `docker login` keep them.

Trimaran asks for no password and stores none. A login is found here and used in the header
of a request, or its file is handed to the engine; it never is an argument or part of a message.
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
"""Registry -> the name under which the login commands keep it, where that is another one."""


_Helper = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$")]
"""What follows `docker-credential-` in the name of a program."""


@dataclass(frozen=True)
class Login:
    """A login that was found.

    Attributes:
        file: holds it, in Docker's form, which Apptainer and Podman read as well.
        basic: value of the header `Authorization`.
    """

    file: Path
    basic: str = field(repr=False)


class _Entry(BaseModel):
    auth: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/=_-]*$")] | None = None


class _Config(BaseModel):
    """What is used of a file of logins; they all have Docker's form."""

    auths: dict[str, _Entry] = {}
    helpers: dict[str, _Helper] = Field(default={}, alias="credHelpers")
    store: _Helper | None = Field(default=None, alias="credsStore")


class _Answer(BaseModel):
    """What a credential helper prints."""

    user: str = Field(alias="Username")
    secret: str = Field(alias="Secret")


def files() -> list[Path]:
    """Return where the login commands keep logins, in the order of precedence."""
    named = os.environ.get("REGISTRY_AUTH_FILE")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    config = paths.user_folder("XDG_CONFIG_HOME", ".config")
    apptainer = _folder("APPTAINER_CONFIGDIR", ".apptainer")
    docker = _folder("DOCKER_CONFIG", ".docker")
    return [
        *([Path(named)] if named else []),
        Path(f"{runtime}/containers" if runtime else f"/run/containers/{os.getuid()}", "auth.json"),
        *([config / "containers/auth.json"] if config else []),
        # The first name is that of older releases.
        *([apptainer / "docker-config.json", apptainer / "config.json"] if apptainer else []),
        *([docker / "config.json"] if docker else []),
    ]


def _folder(variable: str, below: str) -> Path | None:
    named, home = os.environ.get(variable), paths.home()
    return Path(named) if named else home and home / below


def find(host: str, repository: str) -> Login | None:
    """Return the login for `repository` at `host`, or None.

    Raises:
        UsageError: a file of logins cannot be read, or a credential helper fails.
    """
    for path in files():
        if _is_there(path) and (basic := _from_file(path, host, repository)):
            return Login(path, basic)
    return None


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:  # a folder of root's, where podman would keep those of this user
        return False


def _from_file(path: Path, host: str, repository: str) -> str | None:
    try:
        content = _Config.model_validate(parse_json(path.read_bytes()))
    except (OSError, ValueError):
        content = None
    if content is None:
        # The text itself stays out of the message, and out of what caused it: it may be half
        # of a password.
        raise UsageError(f"{path} is no file of registry logins that can be read")
    known = {_place(key): entry for key, entry in content.auths.items()}
    for place in _places(host, repository):
        if place in known and (basic := known[place].auth):
            return f"Basic {basic}"
    helper = content.helpers.get(host) or content.store
    return _ask_helper(helper, host, path) if helper else None


def _place(key: str) -> str:
    """Return the key of a login without what older clients wrote around the host."""
    place = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    return place.removesuffix("/v1").removesuffix("/v2")


def _places(host: str, repository: str) -> Iterator[str]:
    """Yield the keys to look under, the narrowest first: podman logs in to a part of a host."""
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
            return None  # how every helper says that it has no login for this host
        raise UsageError(f"{program}, which {path} names, fails with {answer.returncode}")
    try:
        found = _Answer.model_validate(parse_json(answer.stdout))
    except ValueError:
        found = None
    if found is None:
        raise UsageError(f"{program}, which {path} names, gives no login")
    return "Basic " + base64.b64encode(f"{found.user}:{found.secret}".encode()).decode()
