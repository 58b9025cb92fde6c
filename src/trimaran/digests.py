"""Published images, by digest: the model of `containers/digests.yaml`.

`trimaran push` writes it, `trimaran pull` and recipes with a pinned digest read it. A registry
only is a place: whoever has the digest can take the image from any copy of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from trimaran import paths, strict
from trimaran.errors import BuildError
from trimaran.files import write_atomic

HEADER = """\
# What `trimaran push` has published, and the digests that the registries confirmed.
# Generated, sorted, and committed with each release; `trimaran pull` and recipes read it.
# digest: of the image (of the SIF file; of the OCI image's configuration)
# manifest: of the registry's manifest   content: of the definition that it was built from
"""

Form = Literal["sif", "oci"]
DIGEST = r"^sha256:[0-9a-f]{64}$"
Digest = Annotated[str, Field(pattern=DIGEST)]
Reference = Annotated[str, Field(
    pattern=r"^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
)]


class Publication(strict.Model):
    """One image in one registry.

    Attributes:
        image: name of the definition.
        form: `sif` for Apptainer, `oci` for Podman and others.
        reference: where it was pushed to, `HOST[:PORT]/NAMESPACE/IMAGE:TAG`.
        digest: what the engine calls the image by, and what a recipe pins.
        manifest: what the registry calls it by.
        size: bytes that a pull downloads.
        content: `images.content` of the definition that it was built from.
    """

    image: str
    form: Form
    reference: Reference
    digest: Digest
    manifest: Digest
    size: int = Field(gt=0)
    content: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @property
    def tag(self) -> str:
        """The tag in `reference`."""
        return self.reference.rpartition(":")[2]

    @property
    def place(self) -> str:
        """`HOST[:PORT]/NAMESPACE`: what `--registry` takes."""
        return self.reference.rpartition("/")[0]


class Digests(strict.Model):
    """The whole file."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    published: tuple[Publication, ...] = ()


def path() -> Path:
    """Return where the file lies in the checkout."""
    return paths.repository() / "containers/digests.yaml"


def load() -> Digests:
    """Read the file; a checkout without one has published nothing.

    Raises:
        UsageError: the file has faults.
    """
    return strict.load(Digests, path()) if path().is_file() else Digests()


def find(
    image: str, form: Form, *, digest: str | None = None, tag: str | None = None
) -> Publication | None:
    """Return a publication of `image` in this form.

    Args:
        image: name of the definition.
        form: which form.
        digest: the image's own or its manifest's; it alone decides when it is given.
        tag: decides otherwise.
    """
    for known in load().published:
        if (known.image, known.form) != (image, form):
            continue
        if digest in (known.digest, known.manifest) or (digest is None and tag == known.tag):
            return known
    return None


def record(new: Publication) -> None:
    """Add a publication to the file, in place of what had the same reference.

    Raises:
        BuildError: the file cannot be written; the message has what would have been in it.
    """
    others = [known for known in load().published if known.reference != new.reference]
    text = dump(Digests(published=(*others, new)))
    try:
        write_atomic(path(), text)
    except OSError as error:
        raise BuildError(
            f"pushed, but {path()} cannot be written ({error.strerror}):\n"
            f"{new.reference} {new.digest} manifest {new.manifest}"
        ) from error


def dump(content: Digests) -> str:
    """Return the file's text: the header, then the publications in the order of their names."""
    data = content.model_dump(mode="json", by_alias=True)
    data["published"].sort(key=lambda one: (one["image"], one["form"], one["reference"]))
    return HEADER + yaml.safe_dump(data, sort_keys=False, width=200)
