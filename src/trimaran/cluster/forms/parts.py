"""What every form of a recipe says in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimaran.cluster.scheduler import Shape
from trimaran.engines import Bind
from trimaran.errors import UsageError
from trimaran.images.parts import Gpu
from trimaran.recipes import targets
from trimaran.recipes.recipe import Recipe
from trimaran.sites import Cluster


@dataclass(frozen=True)
class Parts:
    """A run to be said in another way.

    Attributes:
        name: of the recipe, for people.
        image: address of the OCI image: HOST/NAMESPACE/NAME:TAG.
        starter: what starts the tasks inside a container, up to and with the interpreter.
        app: words for the interpreter: module, verb and arguments.
        binds: folders of the host, and where they are seen; the last one is the run directory.
        gpu: whose GPUs the image is for, None without.
        lacking: what has to be made before.
    """

    name: str
    recipe: Recipe
    cluster: Cluster
    image: str
    starter: list[str]
    app: list[str]
    binds: list[Bind]
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
    def out(self) -> Path:
        """The run directory."""
        return self.binds[-1].source

    @property
    def shape(self) -> Shape:
        """What a batch system starts."""
        return Shape.of(self.recipe, targets.load(self.recipe.target).node.sockets)


def source(bind: Bind, forbidden: str, what: str) -> str:
    """Return the folder of the host of a bind.

    Raises:
        UsageError: it is a file system image, or its path has what cannot be quoted there.
    """
    if bind.image:
        raise UsageError(f"{bind.source}: {what} mounts no SquashFS image",
                         hint="give the folder with --data")
    if any(character in forbidden or not character.isprintable() for character in str(bind.source)):
        raise UsageError(f"{bind.source}: {what} has no way to quote {' or '.join(forbidden)}")
    return str(bind.source)


def text(parts: Parts, title: str, lines: list[str]) -> str:
    """Return a script of `lines`, that says at its top what it is."""
    first = f"# {parts.name} with {title}. Not run by Trimaran: no run.json, no verdict of its own."
    return "\n".join(["#!/bin/sh", first, *parts.notes, *lines, ""])
