"""Model `run.json`: the record of a run, with its recipe, image, data, command and machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, computed_field

from trimaran.architectures import Architecture
from trimaran.engines import selection
from trimaran.hostfacts import HostFacts
from trimaran.launch.specification import EngineImage, ImageReference, LaunchSpec
from trimaran.recipes.cards import Argument
from trimaran.run.additions import Modification
from trimaran.run.carriers import FabricRecord
from trimaran.run.site_settings import SiteSettings
from trimaran.strict import Digest, Sha256

Status = Literal["queued", "running", "completed", "failed", "interrupted"]

STOPPED = 75
"""Exit status of an app that was stopped and can be resumed (app contract)."""


def status_after(exit_status: int) -> Status:
    """Return the status of a run whose app ended with `exit_status`."""
    if exit_status == 0:
        return "completed"
    return "interrupted" if exit_status == STOPPED else "failed"


class RecipeRecord(BaseModel):
    """The recipe of a run.

    Attributes:
        name: name of the recipe.
        sha256: hash of the file of the recipe.
        card_sha256: hash of the app card that the verdict uses; None in records of older versions.
        changed: arguments that the command line added to the recipe or replaced, with their values.
        nodes: number of nodes of the run; None: the number in the recipe.
    """

    name: str
    sha256: str
    card_sha256: str | None = None
    changed: dict[str, Argument]
    nodes: int | None = None


class SignatureRecord(BaseModel):
    """The verified signature of an image; `fingerprint` identifies the key that signed it."""

    fingerprint: str
    verified: Literal[True] = True


class PublishedImage(BaseModel, EngineImage, frozen=True, extra="forbid"):
    """An image as evidence and bundles record it: with its digest, but without its local path.

    Attributes:
        digest: as in `ImageReference`; an image without a digest cannot be published.
        inputs: SHA-256 over all inputs of the image.
        architecture: architecture of the image; None in records of older versions.
        signature: the signature that was verified, if the recipe or the site file demands one.
    """

    digest: Digest
    inputs: Sha256
    architecture: Architecture | None = None
    signature: SignatureRecord | None = None


class ImageRecord(BaseModel, ImageReference, frozen=True):
    """The image that was run.

    Attributes:
        architecture: architecture of the image; None on the host, and in records of older versions.
        signature: the signature that was verified, if the recipe or the site file demands one.
        emulated: whether the machine emulated the processor for which the image was built.
    """

    architecture: Architecture | None = None
    signature: SignatureRecord | None = None
    emulated: bool = False

    @computed_field  # type: ignore[prop-decorator]
    @property
    def publishable(self) -> bool:
        """Whether the image has a digest and ran in a container, without an emulated processor.

        The value is computed, not read from a file.
        """
        in_container = selection.is_container(self.engine) and self.digest is not None
        return in_container and not self.emulated


class InitialRecord(BaseModel):
    """The file that a run started from.

    Attributes:
        path: path of the file.
        sha256: hash of the file; None: another run writes the file before this run starts.
    """

    path: str
    sha256: str | None


class DataRecord(BaseModel):
    """A packed data set of the run; `sha256` is the hash of its `dataset.json`."""

    name: str
    path: str
    sha256: str


class GitRecord(BaseModel):
    """The state of the checkout; `dirty` is true if tracked files differ from the revision."""

    revision: str | None
    dirty: bool | None


class CommandRecord(BaseModel):
    """The exact command: arguments, complete environment, and both as one shell line."""

    argv: list[str]
    env: dict[str, str]
    shell: str


class JobRecord(BaseModel):
    """The submission of the run to a batch system.

    Attributes:
        scheduler: the batch system.
        cluster: name of the cluster in the site file.
        script_sha256: hash of the submitted script.
        functions_sha256: hash of the functions file next to the script; None in records of older
            versions, whose scripts contain the functions.
        name: unique name of the jobs of this run; None in records of older versions.
        together: name of the job, if several runs were submitted as one job.
        before: directory of the run that must complete first. The last job of that run then submits
            this run to the batch system.
    """

    scheduler: str
    cluster: str
    script_sha256: str
    functions_sha256: str | None = None
    name: str | None = None
    together: str | None = None
    before: str | None = None


class ResumptionRecord(BaseModel):
    """One resumption of a run, on the machine `host` and the further machines in `nodes`."""

    started: AwareDatetime
    trimaran: str
    git: GitRecord
    host: HostFacts
    nodes: list[HostFacts] = Field(default_factory=list)


def as_list(data: object) -> object:
    """Return the data sets in `run.json` as a list.

    Version 1 of `run.json` contained a single data set without a list.
    """
    return [data] if isinstance(data, dict) else data


class RunRecord(BaseModel):
    """The content of `run.json`, which is written when the run starts and completed when it ends.

    Attributes:
        launch: the launch specification that `command` was rendered from; None in records of
            older versions.
        site: the additions of the site file; None in records of older versions.
        fabric: networks between the nodes that the job used; None if the job had one node, or if
            the site file names no fabric of the cluster.
        nodes: the machines in addition to `host`.
        seconds: duration of the training command, summed over the first start and all
            resumptions. A start that was killed together with Trimaran is not counted.
        files: SHA-256 of the files that the app has written; empty until the app has ended.
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
    fabric: FabricRecord | None = None
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
        """All machines of the run, including those of its resumptions."""
        parts = ((self.host, self.nodes), *((part.host, part.nodes) for part in self.resumed))
        return [host for first, others in parts for host in (first, *others)]

    @property
    def site_changes(self) -> list[str]:
        """The additions of the site file that change the experiment, as text for messages."""
        return self.site.changes if self.site else []
