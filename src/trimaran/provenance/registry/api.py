"""A repository of a registry, asked over HTTP (the OCI distribution specification).

Only what a pull by digest needs: manifests, the sizes and addresses of blobs, tags. oras-py
is not used for it: it sets no timeouts, goes on for two minutes when a registry is down, and
sends a login to wherever the realm of a Basic challenge seems to point.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from dataclasses import dataclass

import requests
from pydantic import BaseModel, Field

from trimaran.errors import BuildError, causes
from trimaran.images.bases import API_HOSTS
from trimaran.net import web
from trimaran.net.transfer import innermost
from trimaran.net.web import Answer
from trimaran.parsing import parse_json
from trimaran.provenance.registry import logins
from trimaran.provenance.registry.tokens import Authorization
from trimaran.strict import Digest

MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""Media types of a manifest of one image; lists of several platforms are not asked for."""

MANIFEST_BYTES = 4 * 1024 * 1024
"""What a manifest may have at most (OCI distribution specification); every SIF has more."""

SHOWN_TAGS = 8
"""How many tags an error names."""


@dataclass(frozen=True)
class Repository:
    """Where one image is: `HOST[:PORT]/NAMESPACE/IMAGE`."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def api(self) -> str:
        """Host and port that answer for it."""
        return API_HOSTS.get(self.host, self.host)


class Blob(BaseModel):
    """What a manifest says of one of its files."""

    media_type: str = Field(alias="mediaType")
    digest: Digest
    size: int = Field(ge=0, lt=1 << 50)


class Content(BaseModel):
    """What is used of a manifest."""

    config: Blob
    layers: list[Blob]


class _Tags(BaseModel):
    tags: list[str] | None = None


@dataclass(frozen=True)
class Manifest:
    """A manifest whose bytes have this digest."""

    digest: str
    content: Content


class Client:
    """Asks one repository; its `session` carries the login and can be used for downloads.

    Args:
        repository: which one.
        insecure: do without TLS where the registry has none. This machine's own
            (localhost, 127.0.0.1) may always do without.
    """

    def __init__(self, repository: Repository, *, insecure: bool = False) -> None:
        self.repository = repository
        self.login = logins.find(repository.host, repository.path)
        self.plain_http = (insecure or is_loopback(repository.host)) and _lacks_tls(repository)
        self._root = f"{'http' if self.plain_http else 'https'}://{repository.api}/v2/"
        self.session = web.session()
        self.session.auth = Authorization(self._root, self.login)

    def check(self) -> None:
        """Raise BuildError unless the registry answers and takes the login."""
        self._refuse_errors(self._ask("GET", ""))

    def manifest(self, reference: str) -> Manifest | None:
        """Return the manifest with this digest or tag, verified; None if there is none.

        Raises:
            BuildError: the registry does not answer, refuses, or sends something else.
        """
        answer = self._ask(
            "GET", f"{self.repository.path}/manifests/{reference}",
            headers={"Accept": ", ".join(MANIFESTS)},
        )
        if answer.status == 404:
            return None
        self._refuse_errors(answer)
        digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        if reference.startswith("sha256:") and digest != reference:
            raise BuildError(
                f"{self.repository.host} sends a manifest with another digest, refused:"
                f" expected {reference}, found {digest}"
            )
        try:
            return Manifest(digest, Content.model_validate(parse_json(answer.content)))
        except ValueError as error:  # pydantic's error is one
            raise BuildError(
                f"what {self.repository}@{digest} names is no manifest of one image"
            ) from error

    def blob_size(self, digest: str) -> int | None:
        """Return the size of a blob in bytes, or None if the repository has none such."""
        answer = self._ask("HEAD", f"{self.repository.path}/blobs/{digest}")
        if answer.status == 404:
            return None
        self._refuse_errors(answer)
        return web.length(answer.headers) or 0

    def blob_url(self, digest: str) -> str:
        """Return the address of a blob."""
        return f"{self._root}{self.repository.path}/blobs/{digest}"

    def tags(self) -> list[str]:
        """Return the tags of the repository; none if it has none or does not say."""
        answer = self._ask("GET", f"{self.repository.path}/tags/list")
        try:
            found = _Tags.model_validate(parse_json(answer.content)).tags
        except ValueError:  # pydantic's error is one
            return []
        return sorted(found or []) if answer.status == 200 else []

    def not_there(self, reference: str) -> BuildError:
        """Return the error for a digest or tag that the repository lacks; names what it has."""
        tags = self.tags()
        has = ", ".join(tags[-SHOWN_TAGS:]) if tags else "no tags"
        more = f", and {len(tags) - SHOWN_TAGS} more" if len(tags) > SHOWN_TAGS else ""
        return BuildError(
            f"{self.repository} has no {reference}; it has {has}{more}",
            hint="check --registry and --digest; `trimaran push` publishes an image",
        )

    def _ask(self, method: str, path: str, headers: dict[str, str] | None = None) -> Answer:
        try:
            return web.answer(
                self._root + path, method=method, headers=headers, most=MANIFEST_BYTES,
                asking=self.session,
            )
        except requests.RequestException as error:
            raise _unreachable(self.repository.host, error) from error

    def _refuse_errors(self, answer: Answer) -> None:
        """Raise BuildError unless the answer's status says success."""
        host, status = self.repository.host, answer.status
        if status < 400:
            return
        if status in (401, 403):
            who = f"refuses the login in {self.login.file}" if self.login else "wants a login"
            raise BuildError(
                f"{host} {who} for {self.repository.path} (HTTP {status})",
                hint=f"log in with `apptainer registry login docker://{host}`"
                f" or `podman login {host}`",
            )
        raise BuildError(f"{host} answers {answer.phrase}",
                         hint="try again later, or another --registry")


def is_loopback(host: str) -> bool:
    """Whether `HOST[:PORT]` is this machine by its own address."""
    name = host.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _lacks_tls(repository: Repository) -> bool:
    """Whether a registry that may do without TLS does; a bad certificate is no reason to."""
    try:
        web.answer(f"https://{repository.api}/v2/", method="HEAD", most=0, auth=web.NOBODY)
    except requests.exceptions.SSLError as error:
        return not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error))
    except requests.RequestException:
        return True  # nothing there; the first real request says so
    return False


def _unreachable(host: str, error: requests.RequestException) -> BuildError:
    if isinstance(error, requests.exceptions.SSLError):
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error)):
            return BuildError(
                f"the certificate of {host} is not trusted: {innermost(error)}",
                hint="--ca-bundle FILE, or ca_bundle in the site file, names the certificates of"
                " your site",
            )
        return BuildError(
            f"{host} speaks no TLS: {innermost(error)}",
            hint="--insecure does without, for a registry in a network that you trust",
        )
    if not isinstance(error, (requests.ConnectionError, requests.Timeout)):
        return BuildError(
            f"the registry {host} gives no sound answer: {innermost(error)}",
            hint="check the address, or try another --registry",
        )
    return BuildError(
        f"the registry {host} cannot be reached: {innermost(error)}",
        hint="check the address and the network (https_proxy, no_proxy)",
    )
