"""HTTP client of one repository of a registry (OCI distribution specification).

It supports the requests of a pull by digest: manifests, sizes and addresses of blobs, and tags.
oras-py is not used, because it sets no timeouts, retries for two minutes if a registry does not
answer, and sends a login to any host that the realm of a Basic challenge names.
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
from trimaran.provenance.registry.logins import Authorization
from trimaran.strict import Digest

MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""Media types of a manifest of one image; manifest lists of several images are not supported."""

MANIFEST_BYTES = 4 * 1024 * 1024
"""Largest accepted size of a manifest in bytes (OCI distribution specification).

Every SIF is larger, so a smaller blob is not a SIF.
"""

SHOWN_TAGS = 8
"""Maximum number of tags that an error message lists."""


@dataclass(frozen=True)
class Repository:
    """The repository of one image: `HOST[:PORT]/NAMESPACE/IMAGE`."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def api(self) -> str:
        """The host and port of the registry's API."""
        return API_HOSTS.get(self.host, self.host)


class Blob(BaseModel):
    """The description of one file in a manifest; `size` is in bytes."""

    media_type: str = Field(alias="mediaType")
    digest: Digest
    size: int = Field(ge=0, lt=1 << 50)


class Content(BaseModel):
    """The keys of a manifest that Trimaran uses."""

    config: Blob
    layers: list[Blob]


class _Tags(BaseModel):
    tags: list[str] | None = None


@dataclass(frozen=True)
class Manifest:
    """A manifest and the digest of its bytes."""

    digest: str
    content: Content


class Client:
    """A client of one repository; its `session` sends the login and is used for downloads, too.

    Args:
        repository: the repository.
        insecure: use HTTP if the registry does not support TLS. For a registry on this machine
            (localhost, 127.0.0.1) this is always allowed.
    """

    def __init__(self, repository: Repository, *, insecure: bool = False) -> None:
        self.repository = repository
        self.login = logins.find(repository.host, repository.path)
        self.plain_http = (insecure or is_loopback(repository.host)) and _lacks_tls(repository)
        self._root = f"{'http' if self.plain_http else 'https'}://{repository.api}/v2/"
        self.session = web.session()
        self.session.auth = Authorization(self._root, self.login)

    def check(self) -> None:
        """Check that the registry answers and accepts the login.

        Raises:
            BuildError: the registry does not answer, or refuses the login.
        """
        self._refuse_errors(self._ask("GET", ""))

    def manifest(self, reference: str) -> Manifest | None:
        """Return the verified manifest with this digest or tag; None if it does not exist.

        Raises:
            BuildError: The registry does not answer, refuses the request, or sends another
                manifest.
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
                f"{self.repository.host} sends a manifest with another digest:"
                f" expected {reference}, found {digest}", code="digest-mismatch",
            )
        try:
            return Manifest(digest, Content.model_validate(parse_json(answer.content)))
        except ValueError as error:  # ValidationError is a subclass
            raise BuildError(
                f"{self.repository}@{digest} is not a manifest of one image",
                code="manifest-invalid",
            ) from error

    def blob_size(self, digest: str) -> int | None:
        """Return the size of a blob in bytes, or None if the repository lacks it."""
        answer = self._ask("HEAD", f"{self.repository.path}/blobs/{digest}")
        if answer.status == 404:
            return None
        self._refuse_errors(answer)
        return web.length(answer.headers) or 0

    def blob_url(self, digest: str) -> str:
        """Return the address of a blob."""
        return f"{self._root}{self.repository.path}/blobs/{digest}"

    def tags(self) -> list[str]:
        """Return the sorted tags of the repository; empty if the registry does not list them."""
        answer = self._ask("GET", f"{self.repository.path}/tags/list")
        try:
            tags = _Tags.model_validate(parse_json(answer.content)).tags
        except ValueError:  # ValidationError is a subclass
            return []
        return sorted(tags or []) if answer.status == 200 else []

    def not_there(self, reference: str) -> BuildError:
        """Return the error for a missing digest or tag; the message names the existing tags."""
        tags = self.tags()
        has = ", ".join(tags[-SHOWN_TAGS:]) if tags else "no tags"
        more = f", and {len(tags) - SHOWN_TAGS} more" if len(tags) > SHOWN_TAGS else ""
        return BuildError(
            f"{self.repository} has no {reference}; it has {has}{more}", code="image-unpublished",
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
        """Raise BuildError if the status of the answer is an error."""
        host, status = self.repository.host, answer.status
        if status < 400:
            return
        if status in (401, 403):
            what = f"refuses the login in {self.login.file}" if self.login else "requires a login"
            raise BuildError(
                f"{host} {what} for {self.repository.path} (HTTP {status})", code="login-refused",
                hint=f"log in with `apptainer registry login docker://{host}`"
                f" or `podman login {host}`",
            )
        raise BuildError(f"the registry {host} answered {answer.phrase}", code="registry-failed",
                         hint="try again later, or name another registry with --registry")


def is_loopback(host: str) -> bool:
    """Return whether `HOST[:PORT]` is a loopback address of this machine."""
    name = host.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _lacks_tls(repository: Repository) -> bool:
    """Return whether a registry does not support TLS; an untrusted certificate does not count."""
    try:
        web.answer(f"https://{repository.api}/v2/", method="HEAD", most=0, auth=web.NOBODY)
    except requests.exceptions.SSLError as error:
        return not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error))
    except requests.RequestException:
        return True  # the next request reports that the registry does not answer
    return False


def _unreachable(host: str, error: requests.RequestException) -> BuildError:
    if isinstance(error, requests.exceptions.SSLError):
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error)):
            return BuildError(
                f"the certificate of {host} is not trusted: {innermost(error)}",
                code="certificate-untrusted",
                hint="give the certificates of your site with --ca-bundle FILE, or by ca_bundle in"
                " the site file",
            )
        return BuildError(
            f"{host} does not use TLS: {innermost(error)}", code="tls-missing",
            hint="--insecure allows HTTP, for a registry in a trusted network",
        )
    if not isinstance(error, (requests.ConnectionError, requests.Timeout)):
        return BuildError(
            f"the registry {host} gives an invalid answer: {innermost(error)}",
            code="registry-failed", hint="check the address, or try another --registry",
        )
    return BuildError(
        f"the registry {host} cannot be reached: {innermost(error)}", code="registry-unreachable",
        hint="check the address and the network (https_proxy, no_proxy)",
    )
