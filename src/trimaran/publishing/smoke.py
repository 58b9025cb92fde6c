"""Train in an image before it is published, with two ranks if it has a smoke recipe for two."""

from __future__ import annotations

from dataclasses import replace

from trimaran.engines import BuiltImage, Engine
from trimaran.errors import BuildError
from trimaran.images.definition import Image
from trimaran.recipes import library
from trimaran.recipes.cards import Card
from trimaran.recipes.library import RecipeFile
from trimaran.reporting import Reporter
from trimaran.run import machines, pipeline
from trimaran.run.request import Request
from trimaran.site_file import Site
from trimaran.verdict import run_verdict
from trimaran.verdict.metrics import Verdict

RANKS = 2
"""Preferred number of ranks of the training: the smallest that communicates."""


def recipe_of(image: Image) -> RecipeFile | None:
    """Return the smoke recipe of `image` for one node, or None.

    If there are several, it is one with two ranks. Of several such recipes, it is the one with the
    shortest name, because names of variants are longer.
    """
    fitting = []
    for name in library.names():
        recipe = library.definition(name)
        if (
            recipe.image.name == image.name and recipe.purpose == "smoke" and recipe.series is None
            and not machines.needs_batch_system(recipe)
        ):
            fitting.append((recipe.resources.tasks_per_node != RANKS, len(name), name))
    return library.load(min(fitting)[-1]) if fitting else None


def train(
    image: Image, engine: Engine, built: BuiltImage, site: Site, reporter: Reporter
) -> str:
    """Run the smoke recipe of `image` in the image `built`; return a sentence about the result.

    Each metric must pass. Only a metric that depends on the hardware may have no reference, because
    the image may be published from another machine than the recipe's target.

    Raises:
        BuildError: A metric fails or has no reference, or the recipe judges no metric.
        RunError: The training ends with an error.
    """
    file = recipe_of(image)
    if file is None:
        return "not trained, because no smoke recipe for one node uses the image"
    choice = file.recipe.image.model_copy(update={"digest": built.digest})
    recipe = replace(file, recipe=file.recipe.model_copy(update={"image": choice}))
    directory = pipeline.execute(Request(
        recipe=recipe, engine=engine, changes={}, site=site, architecture=image.architecture,
    ), reporter)
    verdict = run_verdict.judge(directory).verdict
    if not _passes(verdict, file.card.card):
        raise BuildError(
            f"{image.name} ({image.architecture}) is not published: {file.name} is"
            f" {verdict.outcome} in {directory}",
            code="smoke-failed", hint=f"see the reasons: trimaran report {directory}; a site file"
            " that changes the experiment leaves it without a reference",
        )
    return f"{file.name}: {verdict.outcome} ({directory})"


def _passes(verdict: Verdict, card: Card) -> bool:
    """Return whether a training shows that the image works."""
    judged = [row for row in verdict.rows if row.required]
    return bool(judged) and all(
        row.outcome == "PASS"
        or (row.outcome == "NO REFERENCE" and card.metrics[row.metric].hardware_bound)
        for row in judged
    )
