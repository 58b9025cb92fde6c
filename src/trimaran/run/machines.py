"""Choose the architecture of the machines that run a recipe, and the digest of the image for it."""

from __future__ import annotations

from trimaran.architectures import ARCHITECTURES, Architecture, native, of_machine
from trimaran.errors import UsageError
from trimaran.recipes import targets
from trimaran.recipes.recipe import ImageChoice, Recipe


def needs_batch_system(recipe: Recipe) -> bool:
    """Return whether only a batch system can start a recipe, so that `trimaran run` refuses it."""
    return recipe.resources.nodes > 1 or recipe.launcher == "srun"


def architecture(
    recipe: Recipe, stated: Architecture | None, *, here: bool
) -> Architecture | None:
    """Return the architecture of the machines that run `recipe`; None if no image supports them.

    Args:
        recipe: the recipe; a series needs a batch system if one of its runs (points) does.
        stated: the architecture in an option or in the site file, which is returned; None: there is
            none.
        here: whether this machine runs a recipe that needs no batch system, as `trimaran run` does.
            Otherwise, the nodes of the recipe's target run it.
    """
    if stated is not None:
        return stated
    if here and not any(needs_batch_system(point) for _, point in recipe.variants()):
        return native()
    return of_machine(targets.load(recipe.target).node.architecture)


def unsupported(name: str, recipe: Recipe) -> UsageError:
    """Return the error for the recipe `name` if no image supports the nodes of its target."""
    return UsageError(
        f"{name} is for {recipe.target}, whose nodes are"
        f" {targets.load(recipe.target).node.architecture}: no image supports them",
        code="architecture-unsupported",
        hint=f"for other nodes ({' or '.join(ARCHITECTURES)}), set architecture of the cluster in"
        " the site file, or give --arch to `trimaran bundle` or `trimaran pull`",
    )


def pinned(name: str, choice: ImageChoice, wanted: Architecture) -> str | None:
    """Return the digest of the SIF for an architecture; None if the recipe pins no image.

    Args:
        name: name of the recipe, for the message.
        choice: the image of the recipe.
        wanted: the architecture.

    Raises:
        UsageError: The recipe pins images for other architectures only.
    """
    if isinstance(choice.digest, dict) and wanted not in choice.digest:
        others = ", ".join(choice.digest)
        raise UsageError(
            f"{name} pins {choice.name} for {others}, not for {wanted}",
            code="architecture-mismatch",
            hint=f"use a machine of that architecture (`trimaran pull --arch` gets the image for"
            f" {others}), or copy the recipe and set image.digest to null",
        )
    return choice.digest_for(wanted)
