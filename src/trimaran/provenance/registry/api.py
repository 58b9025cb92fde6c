"""HTTP client of one repository of a registry (OCI distribution specification).

It supports the requests of a pull by digest (manifests, sizes and addresses of blobs, tags) and the
upload of an index: one name for the images for several architectures.
oras-py is not used, because it sets no timeouts, retries for two minutes if a registry does not
answer, and sends a login to any host that the realm of a Basic challenge names.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import requests
from pydantic import BaseModel

from trimaran.architectures import Architecture
from trimaran.errors import BuildError, causes
from trimaran.images.bases import API_HOSTS
from trimaran.net import web
from trimaran.net.transfer import innermost
from trimaran.net.web import Answer
from trimaran.parsing import parse_json
from trimaran.provenance.registry import logins
from trimaran.provenance.registry.logins import Authorization
from trimaran.provenance.registry.manifests import (
    INDEXES,
    MANIFESTS,
    Content,
    Index,
    Manifest,
    Member,
    digest_of,
    index,
)

MANIFEST_BYTES = 4 * 1024 * 1024
"""Largest accepted size of a manifest in bytes (OCI distribution specification).

Every SIF is larger, so a smaller blob is not a SIF.
"""

SHOWN_TAGS = 8
"""Maximum number of tags that an error message lists."""

PART = "-part-"
"""Part of the name of a tag under which an image is uploaded, before it gets its own tag."""

UNKNOWN = "an unknown architecture"
"""The architecture of an image for which neither a registry nor a record states it."""


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


class _Tags(BaseModel):
    tags: list[str] | None = None


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

    def manifest(self, reference: str, architecture: str | None = None) -> Manifest | None:
        """Return the verified manifest with this digest or tag; None if it does not exist.

        Args:
            reference: digest or tag of the manifest, or of an index.
            architecture: the architecture to choose from an index; None: an index is refused.

        Raises:
            BuildError: The registry does not answer, refuses the request, or sends another
                manifest; or the index has no image for the architecture.
        """
        text = self._manifest_text(reference)
        if text is None:
            return None
        digest = digest_of(text)
        if reference.startswith("sha256:") and digest != reference:
            raise BuildError(
                f"{self.repository.host} sends a manifest with another digest:"
                f" expected {reference}, found {digest}", code="digest-mismatch",
            )
        try:
            content = parse_json(text)
            if architecture is not None and isinstance(content, dict) and "manifests" in content:
                members = Index.model_validate(content).manifests
            else:
                found = Content.model_validate(content)
                return Manifest(digest, len(text), found)
        except ValueError as error:  # ValidationError is a subclass
            raise BuildError(
                f"{self.repository}@{digest} is not a manifest of one image",
                code="manifest-invalid",
            ) from error
        return self.manifest(self._chosen(members, architecture, reference))

    def _manifest_text(self, reference: str) -> bytes | None:
        """Return the text of the manifest or index with this digest or tag; None without one."""
        answer = self._ask(
            "GET", f"{self.repository.path}/manifests/{reference}",
            headers={"Accept": ", ".join((*MANIFESTS, *INDEXES))},
        )
        if answer.status == 404:
            return None
        self._refuse_errors(answer)
        return answer.content

    def _chosen(self, members: list[Member], architecture: str, reference: str) -> str:
        """Return the digest of the manifest for `architecture` in the index under `reference`."""
        named = {one.platform.architecture: one.digest for one in members if one.platform}
        if architecture not in named:
            raise BuildError(
                f"{self.repository} has no image for {architecture} under {reference}; it has"
                f" images for {', '.join(sorted(named)) or 'no architecture'}",
                code="architecture-unpublished",
                hint=f"build it: trimaran build IMAGE --arch {architecture}",
            )
        return named[architecture]

    def digest_of(self, tag: str) -> str | None:
        """Return the digest of what has the tag, a manifest or an index; None if it is free."""
        text = self._manifest_text(tag)
        return None if text is None else digest_of(text)

    def architectures(self, tag: str) -> set[str] | None:
        """Return the architectures in the index that has the tag; empty if the tag is free.

        Return None if the tag has a manifest of one image, which states no architecture.

        Raises:
            BuildError: The registry does not answer or refuses the request.
        """
        text = self._manifest_text(tag)
        if text is None:
            return set()
        try:
            members = Index.model_validate(parse_json(text)).manifests
        except ValueError:
            return None
        return {one.platform.architecture if one.platform else UNKNOWN for one in members}

    def put_index(self, tags: list[str], members: Mapping[Architecture, Manifest]) -> str:
        """Push an index of `members` (architecture -> manifest) under each of `tags`.

        Return the digest of the index. A tag that points to this index already is not pushed again.

        Raises:
            BuildError: The registry does not answer or refuses the index.
        """
        body = index(members)
        digest = digest_of(body)
        for tag in tags:
            if self.digest_of(tag) != digest:
                self._put(tag, INDEXES[0], body)
        return digest

    def copy(self, manifest: Manifest, tag: str) -> None:
        """Give the tag to a manifest that the repository has.

        Raises:
            BuildError: The registry does not answer, does not send the manifest, or refuses it.
        """
        body = self._manifest_text(manifest.digest) or b""
        if (found := digest_of(body)) != manifest.digest:
            raise BuildError(
                f"{self.repository.host} sends a manifest with another digest:"
                f" expected {manifest.digest}, found {found}", code="digest-mismatch",
            )
        self._put(tag, manifest.content.media_type or MANIFESTS[0], body)

    def _put(self, tag: str, media_type: str, body: bytes) -> None:
        self._refuse_errors(self._ask(
            "PUT", f"{self.repository.path}/manifests/{tag}",
            headers={"Content-Type": media_type}, body=body,
        ))

    def untag(self, tag: str) -> bool:
        """Remove a tag, and not its manifest; return False if the registry refuses it."""
        try:
            answer = self._ask("DELETE", f"{self.repository.path}/manifests/{tag}")
        except BuildError:
            return False
        return answer.status < 400

    def blob(self, digest: str) -> bytes:
        """Return the content of a small blob.

        Raises:
            BuildError: The registry does not answer, or sends another content.
        """
        answer = self._ask("GET", f"{self.repository.path}/blobs/{digest}")
        self._refuse_errors(answer)
        if (found := digest_of(answer.content)) != digest:
            raise BuildError(
                f"{self.repository.host} sends another blob: expected {digest}, found {found}",
                code="digest-mismatch",
            )
        return answer.content

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
        tags = [tag for tag in self.tags() if PART not in tag]
        has = ", ".join(tags[-SHOWN_TAGS:]) if tags else "no tags"
        more = f", and {len(tags) - SHOWN_TAGS} more" if len(tags) > SHOWN_TAGS else ""
        return BuildError(
            f"{self.repository} has no {reference}; it has {has}{more}", code="image-unpublished",
            hint="check --registry and --digest; `trimaran push` publishes an image",
        )

    def _ask(
        self, method: str, path: str, headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        try:
            return web.answer(
                self._root + path, method=method, headers=headers, most=MANIFEST_BYTES,
                asking=self.session, body=body,
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
