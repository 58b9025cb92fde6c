"""Derive a recipe with other settings and the same global batch from a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from trimaran.recipes import assumed
from trimaran.recipes.cards import Card
from trimaran.recipes.recipe import Recipe, Tuned
from trimaran.tune import space
from trimaran.tune.space import Configuration, Space


class RefusedError(ValueError):
    """The error for contradictory settings in a configuration; its text is the reason."""


def recipe(base: Recipe, within: Space, configuration: Configuration) -> Recipe:
    """Return a copy of the recipe `base` with the settings in `configuration`.

    Raises:
        RefusedError: The settings contradict each other.
    """
    changed = within.changed(configuration)
    content = base.model_dump(by_alias=True, exclude={"assumed", "series"})
    args, env, tuning = content["args"], content["env"], within.tuning
    ranks = int(configuration.get(space.RANKS) or base.resources.tasks_per_node)
    _check(base, within, configuration, ranks)
    if space.RANKS in changed:
        _set_ranks(content, base, within, ranks)
    for name, option in ((space.INPUT, tuning.input), (space.PARTS, tuning.parts),
                         (space.PRECISION, tuning.precision), (space.THREADS, tuning.threads)):
        if name in changed and option is not None:
            args[option] = changed[name]
    if space.THREADS in changed and tuning.threads is None:
        env[space.OMP] = str(changed[space.THREADS])
    if space.FUSION in changed:
        env[space.FUSED] = str(changed[space.FUSION])
    if space.ALLOCATOR in changed:
        env.update(within.allocators[str(changed[space.ALLOCATOR])])
    reasons = assumed.unchanged(base.assumed, base.model_dump(by_alias=True), content)
    return Recipe.model_validate({**content, "assumed": reasons})


def _check(base: Recipe, within: Space, configuration: Configuration, ranks: int) -> None:
    """Check the settings of a configuration against the cores and the batch size.

    Raises:
        RefusedError: the threads of all ranks exceed the cores of the recipe, or the batch of a
            rank cannot be divided into the requested number of micro-batches.
    """
    changed, every = within.changed(configuration).keys(), within.cores
    threads, parts = configuration.get(space.THREADS), configuration.get(space.PARTS)
    if isinstance(threads, int) and threads * ranks > every and (
            changed & {space.RANKS, space.THREADS}):
        raise RefusedError(f"{ranks} ranks of {threads} threads exceed {every} cores")
    batch = space.global_batch(base, within.tuning)
    if batch is not None and isinstance(parts, int) and (batch // ranks) % parts and (
            changed & {space.RANKS, space.PARTS}):
        raise RefusedError(f"{batch // ranks} samples of a rank cannot be divided into {parts}")


def _set_ranks(content: dict[str, Any], base: Recipe, within: Space, ranks: int) -> None:
    """Set the number of ranks of a node in the recipe `content`.

    The launcher and the strategy are adapted, too. The cores and the batch size of a rank are
    changed so that the cores of the node and the global batch stay the same.
    """
    tuning, batch = within.tuning, space.global_batch(base, within.tuning)
    content["resources"].update(tasks_per_node=ranks, cpus_per_task=within.cores // ranks)
    if ranks == 1:
        content["launcher"] = "none"
        content["args"].pop(tuning.strategy, None)
    elif base.launcher == "none":
        content["launcher"], content["args"][tuning.strategy] = next(
            iter(tuning.launchers.items()))
    if tuning.batch_of == "rank" and batch is not None:
        content["args"][tuning.batch] = batch // ranks


def final(
    base: Recipe, card: Card, within: Space, configuration: Configuration, tuned: Tuned
) -> Recipe:
    """Return the tuned recipe; its key `tuned` has the measured rates.

    Expected accuracies and losses are kept if only settings in `space.EXACT` changed. Expected
    speeds are removed, because the speeds in `base` were reached with other settings.
    """
    derived = recipe(base, within, configuration)
    exact = within.changed(configuration).keys() <= space.EXACT
    expected = [one for one in base.expected
                if exact and not card.metrics[one.metric].hardware_bound]
    content = derived.model_dump(by_alias=True, exclude={"series"})
    content["assumed"] = {path: reason for path, reason in derived.assumed.items()
                          if not path.startswith("expected")}
    content["expected"] = [one.model_dump() for one in expected]
    content["tuned"] = tuned.model_dump()
    content["summary"] = f"{base.summary.rstrip('.')}, tuned for one machine."
    return Recipe.model_validate(content)


def name(of: str, base: Recipe) -> str:
    """Return the name of the tuned recipe: `APP/TARGET[-VARIANT]-tuned-PURPOSE`."""
    stem, _, point = of.partition("/")[2].partition("@")
    stem = stem.removesuffix(f"-{base.purpose}") + (f"-{point}" if point else "")
    variant = stem.removeprefix(base.target) if stem.startswith(base.target) else ""
    return f"{base.app}/{base.target}{variant}-tuned-{base.purpose}"


def text(of: Recipe, comment: str) -> str:
    """Return the text of a recipe file that begins with `comment`."""
    content = of.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"series"})
    content.setdefault("expected", [])
    content.setdefault("data", {})
    content["image"] = {"digest": None, **content["image"]}
    written = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    return f"# {comment}\n{written}"


def shown(configuration: Mapping[str, space.Value]) -> str:
    """Return the settings in one line, such as `threads 2, precision bf16`, for a table."""
    words = (f"{name} {'of the app' if value is None else value}"
             for name, value in configuration.items())
    return ", ".join(words) or "as in the recipe"
