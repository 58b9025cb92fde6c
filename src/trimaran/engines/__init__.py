"""Build images and run them with an "engine": Apptainer, Podman or the host without a container.

Each engine is a class that implements `Engine`. The module `selection` lists the engines. Container
engines inherit from `build_steps.Container`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from trimaran import architectures
from trimaran.errors import BuildError
from trimaran.launch.specification import Command, ImageReference, Mount, Node

if TYPE_CHECKING:
    from trimaran.images.definition import Image
    from trimaran.reporting import Reporter


Form = Literal["sif", "oci"]
"""The format in which an engine stores an image: a SIF file, or an OCI image in its own storage."""


@dataclass(frozen=True)
class Setting:
    """What a command in a container gets from the host: mounts, variables and network access.

    Attributes:
        mounts: folders and files of the host that are mounted in the container.
        env: environment variables of the command.
        workdir: working directory in the container.
        network: whether the command may use the network of the host.
    """

    mounts: Sequence[Mount] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    network: bool = False


@dataclass(frozen=True)
class Description:
    """The labels of an image, and its entry point as text; both are read without running it."""

    labels: Mapping[str, str]
    entry_point: str


@dataclass(frozen=True)
class Condition:
    """Whether an engine can be used on this machine.

    Attributes:
        status: "ok": it works; "warn": some operations are slow or impossible; "fail": it is
            broken; "none": it is optional and not installed.
        detail: version and path of the engine, or the problem.
        hint: how to solve the problem.
    """

    status: Literal["ok", "none", "warn", "fail"]
    detail: str
    hint: str = ""


@dataclass(frozen=True)
class BuiltImage(ImageReference):
    """An image that exists on this machine and can be run.

    Attributes:
        size: size on disk in bytes.
    """

    size: int


class Engine(Protocol):
    """The interface of an engine, which builds, finds and runs images of one kind.

    Attributes:
        name: the value of `--engine` that selects the engine.
        container: whether a run is isolated from the host; only such a run can be evidence.
        form: format in which images are stored; None: the engine has no images.
        mounts_images: whether the engine mounts file system images, as data or as an overlay.
    """

    name: ClassVar[str]
    container: ClassVar[bool]
    form: ClassVar[Form | None]
    mounts_images: ClassVar[bool]

    @classmethod
    def condition(cls) -> Condition:
        """Return whether the engine can be used on this machine, and if not, the reason."""

    def find(
        self, image: Image, digest: str | None = None, *, thorough: bool = True
    ) -> BuiltImage | None:
        """Return the image that was built or pulled for the current definition, or None.

        Args:
            image: the definition of the image.
            digest: return the image with this digest, even if the definition has changed since.
            thorough: hash the image even if its size and `ctime` show no change.
        """

    def damage(self, image: Image, digest: str | None = None) -> str | None:
        """Return a description of the damage to a built image, or None if it is intact.

        `build` renames a damaged image and builds the image again.
        """

    def planned(self, image: Image) -> BuiltImage:
        """Return a description of the image that `build` would make; it need not exist.

        In the description, the digest is None and the size is 0.
        """

    def build(
        self, image: Image, *, base: str | None, offline: bool, reporter: Reporter
    ) -> BuiltImage:
        """Build `image` from its locked wheelhouse; build a missing framework image first.

        Args:
            image: the definition of the image.
            base: base image to use; None: the base image in the definition.
            offline: use only files that were downloaded before.
            reporter: shows progress.
        """

    def again(
        self, image: Image, *, base: str | None, reporter: Reporter
    ) -> AbstractContextManager[BuiltImage]:
        """Build `image` again, offline, and yield the second image for a comparison.

        The second image is deleted after the `with` block.
        """

    def test(self, image: Image, built: BuiltImage, reporter: Reporter) -> None:
        """Run the self-test of the definition `image` in the built image.

        Raises:
            BuildError: the self-test fails; the message contains its output.
        """

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Return a command that runs the Python of the image, isolated from the host like a run."""

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        """Run the Python of the image with the arguments `words`, and return what it prints."""

    def described(self, built: BuiltImage) -> Description:
        """Return the image's labels and entry point."""

    def node(self, built: BuiltImage) -> Node:
        """Return the machine-dependent parts of a run's command, such as the image's location."""


def require(engine: Engine, image: Image) -> BuiltImage:
    """Return the image that was built or pulled for the current definition.

    Raises:
        BuildError: there is no such image on this machine, or it is damaged.
    """
    built = engine.find(image)
    if built is None:
        fault = engine.damage(image)
        raise BuildError(
            fault or f"{image.name} ({image.architecture}) is not built for {engine.name}",
            code="image-damaged" if fault else "image-missing",
            hint=f"trimaran build {image.name} --engine {engine.name}"
            f"{architectures.option(image.architecture)}"
            + (" renames it and builds it again" if fault else ""),
        )
    return built
