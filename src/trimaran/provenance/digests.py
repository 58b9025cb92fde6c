"""Published images, by digest: what the project has published, and what this user has pushed.

`containers/digests.yaml` is the project's: a release writes it, and it is committed. What
`trimaran push` sends goes into a file of the user's own, so that no checkout is changed by it.
`trimaran pull` and recipes with a pinned digest read both. A registry only is a place: whoever
has the digest can take the image from any copy of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from trimaran import paths, strict
from trimaran.engines import Form
from trimaran.errors import BuildError
from trimaran.files import write_atomic
from trimaran.strict import Digest, Sha256

HEADER = """\
# What was pushed, and the digests that the registries confirmed. Generated and sorted;
# `trimaran pull` and recipes read it. That of the project is committed with each release.
# digest: of the image (of the SIF file; of the OCI image's configuration)
# manifest: of the registry's manifest   content: of the definition that it was built from
"""

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
        content: `identity.content_of` of the definition that it was built from.
    """

    image: str
    form: Form
    reference: Reference
    digest: Digest
    manifest: Digest
    size: int = Field(gt=0)
    content: Sha256

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


def project_path() -> Path:
    """Return where the checkout has what the project has published."""
    return paths.repository() / "containers/digests.yaml"


def own_path() -> Path | None:
    """Return where what this user has pushed is recorded; None: there is no home."""
    folder = paths.of_user("XDG_STATE_HOME", ".local/state")
    return folder and folder / "digests.yaml"


def load(path: Path | None) -> Digests:
    """Read such a file; a missing one has published nothing.

    Raises:
        UsageError: the file has faults.
    """
    return strict.load(Digests, path) if path and path.is_file() else Digests()


def known() -> tuple[Publication, ...]:
    """Return what this user has pushed, then what the project has published elsewhere."""
    own = load(own_path()).published
    there = {one.reference for one in own}
    project = load(project_path()).published
    return (*own, *(one for one in project if one.reference not in there))


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
    for one in known():
        if (one.image, one.form) != (image, form):
            continue
        if digest in (one.digest, one.manifest) or (digest is None and tag == one.tag):
            return one
    return None


def record(new: Publication, path: Path) -> None:
    """Add a publication to the file at `path`, in place of what had the same reference.

    Raises:
        BuildError: the file cannot be written; the message has what would have been in it.
    """
    others = [one for one in load(path).published if one.reference != new.reference]
    text = dump(Digests(published=(*others, new)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except OSError as error:
        raise BuildError(
            f"pushed, but {path} cannot be written ({error.strerror}):\n"
            f"{new.reference} {new.digest} manifest {new.manifest}"
        ) from error


def dump(content: Digests) -> str:
    """Return the file's text: the header, then the publications in the order of their names."""
    data = content.model_dump(mode="json", by_alias=True)
    data["published"].sort(key=lambda one: (one["image"], one["form"], one["reference"]))
    return HEADER + yaml.safe_dump(data, sort_keys=False, width=200)
