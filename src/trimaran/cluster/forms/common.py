"""What every form of a recipe says in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimaran.cluster.scheduler import Shape
from trimaran.errors import UsageError
from trimaran.images.parts import Gpu
from trimaran.launch.specification import LaunchSpec, Mount
from trimaran.recipes import targets
from trimaran.recipes.recipe import Recipe
from trimaran.site_file import Cluster


@dataclass(frozen=True)
class Parts:
    """A run to be said in another way.

    Attributes:
        name: of the recipe, for people.
        launch: its launch specification; the image is an address, HOST/NAMESPACE/NAME:TAG.
        gpu: whose GPUs the image is for, None without.
        lacking: what has to be made before.
    """

    name: str
    recipe: Recipe
    cluster: Cluster
    launch: LaunchSpec
    gpu: Gpu | None
    lacking: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Lines that say what has to be made before."""
        return [f"# first: {what}" for what in self.lacking]

    @property
    def env(self) -> Mapping[str, str]:
        """Variables of the ranks."""
        return {**self.recipe.env, **self.cluster.env}

    @property
    def image(self) -> str:
        """The address of the OCI image."""
        return self.launch.image.reference

    @property
    def starter(self) -> tuple[str, ...]:
        """What starts the ranks inside a container, up to and with the interpreter."""
        return self.launch.launcher or ("python",)

    @property
    def app(self) -> tuple[str, ...]:
        """What the interpreter is given: the module, its verb and its options."""
        return ("-m", str(self.launch.module), *self.launch.arguments)

    @property
    def out(self) -> str:
        """The run directory."""
        return next(str(mount.source) for mount in self.launch.mounts if mount.writable)

    @property
    def shape(self) -> Shape:
        """What a batch system starts."""
        return Shape.of(self.recipe, targets.load(self.recipe.target).node.sockets)


def source(mount: Mount, forbidden: str, what: str) -> str:
    """Return the folder of the host that a mount shows.

    Raises:
        UsageError: it is a file system image, or its path has what cannot be quoted there.
    """
    path = str(mount.source)
    if mount.image:
        raise UsageError(f"{path}: {what} mounts no SquashFS image",
                         hint="give the folder with --data")
    if any(character in forbidden or not character.isprintable() for character in path):
        raise UsageError(f"{path}: {what} has no way to quote {' or '.join(forbidden)}")
    return path


def text(parts: Parts, title: str, lines: list[str]) -> str:
    """Return a script of `lines`, that says at its top what it is."""
    first = f"# {parts.name} with {title}. Not run by Trimaran: no run.json, no verdict of its own."
    return "\n".join(["#!/bin/sh", first, *parts.notes, *lines, ""])
