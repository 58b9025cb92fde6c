"""Record published images with their digests.

`containers/digests.yaml` lists the images that the project has published; each release writes and
commits it. `trimaran push` records images in a file of the user, so that it changes no checkout.
`trimaran pull` and recipes with a pinned digest read both files. An image with a known digest can
be pulled from any registry that has a copy.
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
        image: name of the image definition.
        form: `sif` for Apptainer, `oci` for Podman and others.
        reference: address in the registry, `HOST[:PORT]/NAMESPACE/IMAGE:TAG`.
        digest: digest of the image in its engine, which a recipe pins.
        manifest: digest of the manifest in the registry.
        size: size of a download in bytes.
        content: hash (`definition.content_of`) of the definition from which the image was built.
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
        """The part `HOST[:PORT]/NAMESPACE` of `reference`, as `--registry` takes it."""
        return self.reference.rpartition("/")[0]


class Digests(strict.Model):
    """The content of a `digests.yaml`: the images that were pushed to registries."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    published: tuple[Publication, ...] = ()


def project_path() -> Path:
    """Return the path of the list of images that the project has published."""
    return paths.repository() / "containers/digests.yaml"


def own_path() -> Path | None:
    """Return the path of the list of images that the user pushed; None without a home folder."""
    folder = paths.of_user("XDG_STATE_HOME", ".local/state")
    return folder and folder / "digests.yaml"


def load(path: Path | None) -> Digests:
    """Read a file of digests; a missing file counts as empty.

    Raises:
        UsageError: The file has faults.
    """
    return strict.load(Digests, path) if path and path.is_file() else Digests()


def known() -> tuple[Publication, ...]:
    """Return the records of pushed images: first the user's records, then the project's.

    A publication of the project is left out if the user has one with the same reference.
    """
    own = load(own_path()).published
    references = {publication.reference for publication in own}
    project = load(project_path()).published
    return (*own, *(other for other in project if other.reference not in references))


def find(
    image: str, form: Form, *, digest: str | None = None, tag: str | None = None
) -> Publication | None:
    """Return the first record of a pushed image with this name, format and digest or tag, or None.

    Args:
        image: name of the image definition.
        form: format of the image in the registry, `sif` or `oci`.
        digest: digest of the image or of its manifest; None: search for `tag`.
        tag: tag of the image; it is ignored if `digest` is given.
    """
    for publication in known():
        if (publication.image, publication.form) != (image, form):
            continue
        digests = (publication.digest, publication.manifest)
        if digest in digests or (digest is None and tag == publication.tag):
            return publication
    return None


def record(new: Publication, path: Path) -> None:
    """Add the publication `new` to the file `path`; it replaces an entry with the same reference.

    Raises:
        BuildError: The file cannot be written; the message contains the digests.
    """
    others = [old for old in load(path).published if old.reference != new.reference]
    text = dump(Digests(published=(*others, new)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except OSError as error:
        raise BuildError(
            f"the image was pushed, but {path} cannot be written ({error.strerror}):\n"
            f"{new.reference} {new.digest} manifest {new.manifest}", code="file-unwritable",
        ) from error


def dump(content: Digests) -> str:
    """Return the text of a `digests.yaml`: the header, and the published images sorted by name."""
    data = content.model_dump(mode="json", by_alias=True)
    data["published"].sort(key=lambda row: (row["image"], row["form"], row["reference"]))
    return HEADER + yaml.safe_dump(data, sort_keys=False, width=200)
