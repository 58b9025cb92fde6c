"""The request of a run: its recipe, engine and settings, and the image that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from trimaran.architectures import Architecture, native
from trimaran.engines import Engine
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.run import machines
from trimaran.run.additions import Extension
from trimaran.site_file import Site


@dataclass(frozen=True)
class Request:
    """A run that the user requests.

    Attributes:
        recipe: the recipe to run.
        engine: the engine of the image.
        changes: arguments from `--set`, which replace those of the recipe.
        folders: packed data sets to use instead of those in the cache, by name.
        initial: checkpoint that the run starts from.
        out: run directory to create; None: a new folder below `runs`.
        base: base image to build on instead of the pinned base image.
        offline: do not use the network.
        site: the site file: registry, accepted signers, binds.
        extension: additions to the image.
        queued: whether a batch system starts the tasks on the nodes that the recipe requests.
        to_come: whether another run writes `initial` before this run starts.
        architecture: architecture of the machine that runs the image; None: this machine's.
    """

    recipe: RecipeFile
    engine: Engine
    changes: dict[str, Argument]
    folders: Mapping[str, Path] = field(default_factory=dict)
    initial: Path | None = None
    out: Path | None = None
    base: str | None = None
    offline: bool = False
    site: Site = field(default_factory=Site)
    extension: Extension = field(default_factory=Extension)
    queued: bool = False
    to_come: bool = False
    architecture: Architecture | None = None

    @cached_property
    def image(self) -> Image:
        """The definition of the recipe's image, for the architecture of the run.

        Raises:
            UsageError: no image is made for the architecture; the message gives the reason.
        """
        image = definition.load(self.recipe.recipe.image.name)
        return definition.on(image, self.architecture or native())

    @cached_property
    def pinned(self) -> str | None:
        """The digest of the pinned image; None if the recipe pins none, or for a run on the host.

        Recipes pin the digest of a SIF. For another engine, this is the digest of the image that
        was published with that SIF.

        Raises:
            UsageError: The recipe pins images for other architectures only.
        """
        choice = self.recipe.recipe.image
        if self.engine.form is None:
            return None
        digest = machines.pinned(self.recipe.name, choice, self.image.architecture)
        if digest is None:
            return None
        from trimaran.provenance import digests  # only for recipes with a digest

        return digests.counterpart(choice.name, digest, self.engine.form)
