"""`run.json`: what is known of one execution, and where it comes from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, computed_field

from trimaran.engines import selection
from trimaran.hostfacts import HostFacts
from trimaran.images.reference import EngineImage, ImageReference
from trimaran.launch.specification import LaunchSpec
from trimaran.recipes.options import Argument
from trimaran.run.extensions import Modification
from trimaran.run.initial import InitialRecord
from trimaran.run.site_settings import SiteSettings
from trimaran.strict import Digest, Sha256

Status = Literal["queued", "running", "completed", "failed", "interrupted"]

STOPPED = 75
"""Exit status of an app that was stopped and can go on (app contract)."""


def status_after(exit_status: int) -> Status:
    """Return what a run is whose app has ended so."""
    if exit_status == 0:
        return "completed"
    return "interrupted" if exit_status == STOPPED else "failed"


class RecipeRecord(BaseModel):
    """Which recipe was run, by content, and what was changed on the command line.

    `card_sha256` is that of the app's card, by which the run is judged; a run of an older version
    has none. `nodes` is on how many it was run instead of those that it says; None: on those.
    """

    name: str
    sha256: str
    card_sha256: str | None = None
    changed: dict[str, Argument]
    nodes: int | None = None


class SignatureRecord(BaseModel):
    """Whose signature of the image was asked for, and found to hold."""

    fingerprint: str
    verified: Literal[True] = True


class PublishedImage(BaseModel, EngineImage, frozen=True, extra="forbid"):
    """An image in a file for other machines: by its digest, without a place.

    Attributes:
        digest: as in `ImageReference`; an image without a digest is not published.
        inputs: as in `ImageReference`.
        signature: the signature that was verified, if the recipe or the site file demands one.
    """

    digest: Digest
    inputs: Sha256
    signature: SignatureRecord | None = None


class ImageRecord(BaseModel, ImageReference, frozen=True):
    """The image that was run."""

    signature: SignatureRecord | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def publishable(self) -> bool:
        """Whether it was a container, known by its digest: a file that says so is not believed."""
        return selection.is_container(self.engine) and self.digest is not None


class DataRecord(BaseModel):
    """Which packed data set was read: `sha256` is that of its `dataset.json`."""

    name: str
    path: str
    sha256: str


class GitRecord(BaseModel):
    """State of the checkout: `dirty` when tracked files differ from the revision."""

    revision: str | None
    dirty: bool | None


class CommandRecord(BaseModel):
    """The exact command: arguments, whole environment, and both as one shell line."""

    argv: list[str]
    env: dict[str, str]
    shell: str


class JobRecord(BaseModel):
    """How a batch system was asked to run it.

    Attributes:
        script_sha256: of the script that was submitted.
        functions_sha256: of the functions beside it; scripts of older versions contain theirs.
        name: of its jobs in the batch system, and of no others; older versions recorded none.
    """

    scheduler: str
    cluster: str
    script_sha256: str
    functions_sha256: str | None = None
    name: str | None = None


class ResumptionRecord(BaseModel):
    """When, where and by which revision a stopped run went on; `nodes` are the further ones."""

    started: AwareDatetime
    trimaran: str
    git: GitRecord
    host: HostFacts
    nodes: list[HostFacts] = Field(default_factory=list)


def as_list(data: object) -> object:
    """Return the data sets of `run.json` or a bundle; version 1 had one, and not in a list."""
    return [data] if isinstance(data, dict) else data


class RunRecord(BaseModel):
    """`run.json`: written when the run starts, completed when it ends.

    `seconds` are those of the training command: of all its parts, but for a part that was
    killed together with the tool and could not tell. `files` has the SHA-256 of what the app
    left, from the moment on when it ended. `nodes` are those besides `host`. `launch` is the
    specification that `command` was rendered from. `site` is what the site file added. A run of
    an older version has neither `launch` nor `site`.
    """

    schema_version: Literal[1, 2] = 2
    status: Status
    trimaran: str
    recipe: RecipeRecord
    image: ImageRecord
    modified: list[Modification] = Field(default_factory=list)
    data: Annotated[list[DataRecord], BeforeValidator(as_list)]
    initial: InitialRecord | None = None
    git: GitRecord
    launch: LaunchSpec | None = None
    command: CommandRecord
    site: SiteSettings | None = None
    job: JobRecord | None = None
    host: HostFacts
    nodes: list[HostFacts] = Field(default_factory=list)
    environment: dict[str, object] | None = None
    started: AwareDatetime
    resumed: list[ResumptionRecord] = Field(default_factory=list)
    ended: AwareDatetime | None = None
    seconds: float | None = None
    exit_status: int | None = None
    files: dict[str, str] = Field(default_factory=dict)

    @property
    def hosts(self) -> list[HostFacts]:
        """Every machine that the run was on."""
        parts = ((self.host, self.nodes), *((part.host, part.nodes) for part in self.resumed))
        return [host for first, others in parts for host in (first, *others)]

    @property
    def site_changes(self) -> list[str]:
        """What the site file changed of the experiment."""
        return self.site.changes if self.site else []
