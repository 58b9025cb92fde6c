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

from trimaran import locks, paths, strict
from trimaran.architectures import Architecture
from trimaran.engines import Form
from trimaran.errors import BuildError
from trimaran.files import write_atomic
from trimaran.reporting import Silent
from trimaran.strict import Digest, Sha256

HEADER = """\
# What was pushed, and the digests that the registries confirmed. Generated and sorted;
# `trimaran pull` and recipes read it. That of the project is committed with each release.
# digest: of the image (of the SIF file; of the OCI image's configuration)
# manifest: of the registry's manifest   content: of the definition that it was built from
# release: the tag of the version, which is moved to newer images; the tag in reference is not
"""

TAG = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
"""Pattern of a tag."""

Reference = Annotated[str, Field(
    pattern=rf"^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+:{TAG}$"
)]


class Publication(strict.Model):
    """One image in one registry.

    Attributes:
        image: name of the image definition.
        form: `sif` for Apptainer, `oci` for Podman and others.
        architecture: architecture of the image; files of older versions, which do not state it,
            list images for amd64.
        reference: address in the registry, `HOST[:PORT]/NAMESPACE/IMAGE:TAG`.
        digest: digest of the image in its engine, which a recipe pins.
        manifest: digest of the manifest in the registry.
        size: size of a download in bytes.
        content: hash (`content_hash.content_of`) of the definition from which the image was built.
        release: tag of the version that points to this image, or to an index with this image; None:
            it was moved to a newer image, or never pointed to this one.
    """

    image: str
    form: Form
    architecture: Architecture = "amd64"
    reference: Reference
    digest: Digest
    manifest: Digest
    size: int = Field(gt=0)
    content: Sha256
    release: Annotated[str, Field(pattern=rf"^{TAG}$")] | None = None

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

    A record of the project is left out if the user has a record with the same reference.
    """
    own = load(own_path()).published
    references = {publication.reference for publication in own}
    project = load(project_path()).published
    return (*own, *(other for other in project if other.reference not in references))


def with_digest(image: str, form: Form, digest: str) -> Publication | None:
    """Return the first record of an image whose digest, or that of its manifest, is `digest`."""
    for publication in known():
        same = (publication.image, publication.form) == (image, form)
        if same and digest in (publication.digest, publication.manifest):
            return publication
    return None


def current(
    image: str, form: Form, architecture: Architecture, *, content: str, release: str
) -> Publication | None:
    """Return the record of the image for an architecture that is published now, or None.

    It is the image of the definition with the hash `content`, else the image to which the tag
    `release` points, which was published from another definition.
    """
    wanted = (image, form, architecture)
    here = [one for one in known() if (one.image, one.form, one.architecture) == wanted]
    for one in here:
        if one.content == content:
            return one
    # Records of older versions have the tag of the release as the tag of their reference.
    return next((one for one in here if release in (one.release, one.tag)), None)


def counterpart(image: str, digest: str, form: Form) -> str:
    """Return the digest in the format `form` of a published image; `digest` is in any format.

    The two formats of one image have different digests. The counterpart is in the same registry.
    The digest of a recorded manifest gives that of its image. The result is `digest` itself if it
    is the digest in this format, or if no counterpart is recorded.
    """
    published = [one for one in known() if one.image == image]
    same = [one for one in published if digest in (one.digest, one.manifest)]
    for one in same:
        for other in published:
            if (other.form, other.architecture, other.content, other.place) == (
                form, one.architecture, one.content, one.place
            ):
                return one.digest if one.form == form else other.digest
    return digest


def record(new: Publication, path: Path) -> None:
    """Add the publication `new` to the file `path`; it replaces an entry with the same reference.

    If the tag of the release was moved from another entry to `new`, that entry loses the tag. If
    `new` has no tag of a release, and the replaced entry is of the same image, `new` takes over the
    tag of that entry. Processes that record at the same time wait for each other.

    Raises:
        BuildError: The file cannot be written; the message contains the digests.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locks.making(path, Silent()):
            published = load(path).published
            for old in published:
                if new.release is None and _is_same(old, new):
                    new = new.model_copy(update={"release": old.release})
            others = [
                old.model_copy(update={"release": None}) if _is_replaced(old, new) else old
                for old in published if old.reference != new.reference
            ]
            write_atomic(path, dump(Digests(published=(*others, new))))
    except OSError as error:
        raise BuildError(
            f"the image was pushed, but {path} cannot be written ({error.strerror}):\n"
            f"{new.reference} {new.digest} manifest {new.manifest}", code="file-unwritable",
        ) from error


def _is_same(old: Publication, new: Publication) -> bool:
    return (old.reference, old.manifest) == (new.reference, new.manifest)


def _is_replaced(old: Publication, new: Publication) -> bool:
    """Return whether the tag of a release was moved from the image `old` to the image `new`."""
    def name(one: Publication) -> tuple[str | None, ...]:
        return one.image, one.place, one.form, one.architecture, one.release

    return new.release is not None and name(old) == name(new)


def dump(content: Digests) -> str:
    """Return the text of a `digests.yaml`: the header, and the published images sorted by name."""
    data = content.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["published"].sort(key=lambda row: (row["image"], row["form"], row["reference"]))
    return HEADER + yaml.safe_dump(data, sort_keys=False, width=200)
