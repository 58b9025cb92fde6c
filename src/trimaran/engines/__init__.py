"""Engines: what builds and runs an image. One module each, all with the shape of `Engine`.

`selection` has the one list of them. Those of containers stand on `building.Container`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from trimaran.errors import BuildError

if TYPE_CHECKING:
    from trimaran.images.definition import Image
    from trimaran.reporting import Reporter


Form = Literal["sif", "oci"]
"""How an image is kept: in a SIF file, or as an OCI image in a storage of its engine."""


@dataclass(frozen=True)
class Bind:
    """A host folder or file shown inside the container; read-only unless `writable`.

    With `image` it is a file system image, and what is in that is shown.
    """

    source: Path
    target: str
    writable: bool = False
    image: bool = False


@dataclass(frozen=True)
class Setting:
    """What a command finds: what is shown to it, its variables and its working directory.

    With `network` it may use the host's network.
    """

    binds: Sequence[Bind] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    network: bool = False


@dataclass(frozen=True)
class Command:
    """What is executed, exactly: argument list and the whole environment of the process."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Description:
    """What an engine knows of an image without running it: labels, and the entry point as text."""

    labels: Mapping[str, str]
    entry_point: str


@dataclass(frozen=True)
class Condition:
    """Whether an engine can be used here; "none": it is not here, and need not be."""

    status: Literal["ok", "none", "warn", "fail"]
    detail: str
    hint: str = ""


@dataclass(frozen=True)
class BuiltImage:
    """An image that exists on this machine and can be run.

    Attributes:
        name: name of the image definition (`resnet-imagenet-torch-cpu`).
        engine: name of the engine that holds it.
        reference: SIF path, OCI image reference or virtual environment folder.
        digest: `sha256:…` of the SIF file or of the OCI manifest; None on the host.
        inputs: SHA-256 over everything that went into it (definition, locks, sources, base).
        size: bytes on disk.
        overlay: folder or file system image that is laid over it, read-only (Apptainer).
    """

    name: str
    engine: str
    reference: str
    digest: str | None
    inputs: str
    size: int
    overlay: Path | None = None


class Engine(Protocol):
    """Builds, finds and runs images of one kind.

    Attributes:
        name: as `--engine` has it.
        container: whether it shields a run from the host; only such results can be evidence.
        form: of its images; None: it has none.
        mounts_images: whether it shows file system images to a run, as data or as an overlay.
    """

    name: ClassVar[str]
    container: ClassVar[bool]
    form: ClassVar[Form | None]
    mounts_images: ClassVar[bool]

    @classmethod
    def condition(cls) -> Condition:
        """Return whether it can be used on this machine, and what to do about it."""

    def find(
        self, image: Image, digest: str | None = None, *, thorough: bool = True
    ) -> BuiltImage | None:
        """Return the image built or pulled for the current definition, or None.

        Args:
            image: which one.
            digest: it is the image with this digest, whatever the definition is now.
            thorough: it is to be used: hash it, even if it has not been touched since it was made.
        """

    def damage(self, image: Image, digest: str | None = None) -> str | None:
        """Return what is wrong with the image that `find` should have found; None: nothing.

        `build` sets it aside and makes it anew.
        """

    def planned(self, image: Image) -> BuiltImage:
        """Return what `build` would make from the current inputs (digest None, size 0)."""

    def build(
        self, image: Image, *, base: str | None, offline: bool, reporter: Reporter
    ) -> BuiltImage:
        """Build `image` (and the framework image it stands on) from its locked wheelhouse."""

    def again(
        self, image: Image, *, base: str | None, reporter: Reporter
    ) -> AbstractContextManager[BuiltImage]:
        """Build `image` once more, offline and aside; what was made is gone after the `with`."""

    def test(self, built: BuiltImage, reporter: Reporter) -> None:
        """Run the image's self-test; raises BuildError with its output when it fails."""

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Return the command that runs the image's own Python, isolated as a run is."""

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        """Run the image's own Python with `words`, isolated as a run is; return what it prints."""

    def described(self, built: BuiltImage) -> Description:
        """Return the image's labels and entry point."""

    def command(
        self, built: BuiltImage, args: Sequence[str], setting: Setting,
        launcher: Sequence[str] = (),
    ) -> Command:
        """Return the exact command that runs the image's entry point with `args`.

        With a `launcher` (see `command.launcher`) this starts it, in its tasks.
        """


def require(engine: Engine, image: Image) -> BuiltImage:
    """Return the image that is here for the current definition.

    Raises:
        BuildError: it is not, or damaged; the hint says how it is made.
    """
    built = engine.find(image)
    if built is None:
        fault = engine.damage(image)
        raise BuildError(
            fault or f"{image.name} is not built for {engine.name}",
            hint=f"trimaran build {image.name} --engine {engine.name}"
            + (" sets it aside and makes it anew" if fault else ""),
        )
    return built
