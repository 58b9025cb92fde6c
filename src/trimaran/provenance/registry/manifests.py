"""The manifests of a registry: of one image, and the index of one image for several architectures.

The keys are those of the OCI image specification and of Docker's older format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field

from trimaran.architectures import Architecture
from trimaran.strict import Digest

MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""Media types of a manifest of one image."""

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""Media types of an index, which lists the manifests of one image for several architectures."""


class Blob(BaseModel):
    """The description of one file in a manifest; `size` is in bytes."""

    media_type: str = Field(alias="mediaType")
    digest: Digest
    size: int = Field(ge=0, lt=1 << 50)


class Content(BaseModel):
    """The keys of a manifest that Trimaran uses."""

    media_type: Literal[
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    ] | None = Field(default=None, alias="mediaType")
    config: Blob
    layers: list[Blob]


class Platform(BaseModel):
    """The machine for which an image was made."""

    architecture: str = Field(pattern=r"^[a-z0-9_.-]{1,32}$")


class Member(Blob):
    """The entry of one manifest in an index."""

    platform: Platform | None = None


class Index(BaseModel):
    """The keys of an index that Trimaran uses."""

    manifests: list[Member]


@dataclass(frozen=True)
class Manifest:
    """A manifest, with the digest and the number of its bytes."""

    digest: str
    size: int
    content: Content


def digest_of(content: bytes) -> str:
    """Return the digest of a manifest, an index or a blob."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def index_digest(members: Mapping[Architecture, Manifest]) -> str:
    """Return the digest of the index that `Client.put_index` makes of `members`."""
    return digest_of(index(members))


def index(members: Mapping[Architecture, Manifest]) -> bytes:
    """Return the JSON text of an OCI image index that lists the manifests `members`.

    The same members always give the same text, and so the same digest.
    """
    listed = [
        {
            "mediaType": manifest.content.media_type or MANIFESTS[0],
            "digest": manifest.digest, "size": manifest.size,
            "platform": {"os": "linux", "architecture": architecture},
        }
        for architecture, manifest in sorted(members.items())
    ]
    content = {"schemaVersion": 2, "mediaType": INDEXES[0], "manifests": listed}
    return json.dumps(content, indent=1).encode()
