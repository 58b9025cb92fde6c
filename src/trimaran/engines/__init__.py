"""Engines: what builds and runs an image. One module each, all with the shape of `Engine`.

`selection` has the one list of them. Those of containers stand on `building.Container`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from trimaran.errors import BuildError
from trimaran.images.reference import ImageReference
from trimaran.launch.specification import Command, Mount, Node

if TYPE_CHECKING:
    from trimaran.images.definition import Image
    from trimaran.reporting import Reporter


Form = Literal["sif", "oci"]
"""How an image is kept: in a SIF file, or as an OCI image in a storage of its engine."""


@dataclass(frozen=True)
class Setting:
    """What a command finds: what is shown to it, its variables and its working directory.

    With `network` it may use the host's network.
    """

    mounts: Sequence[Mount] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    network: bool = False


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
class BuiltImage(ImageReference):
    """An image that exists on this machine and can be run.

    Attributes:
        size: bytes on disk.
    """

    size: int


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

    def test(self, image: Image, built: BuiltImage, reporter: Reporter) -> None:
        """Run the self-test that the definition `image` has in its image `built`.

        Raises:
            BuildError: the self-test fails; the message has its output.
        """

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Return the command that runs the image's own Python, isolated as a run is."""

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        """Run the image's own Python with `words`, isolated as a run is; return what it prints."""

    def described(self, built: BuiltImage) -> Description:
        """Return the image's labels and entry point."""

    def node(self, built: BuiltImage) -> Node:
        """Return what a run of the image takes from this machine (see `launch.LaunchSpec`)."""


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
