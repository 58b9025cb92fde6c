"""Where recipes are: found by name, loaded and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from trimaran import paths, strict
from trimaran.data import weights
from trimaran.errors import UsageError
from trimaran.files import sha256
from trimaran.recipes import cards, checks
from trimaran.recipes.cards import CardFile
from trimaran.recipes.recipe import Initial, Recipe


@dataclass(frozen=True)
class RecipeFile:
    """A recipe that can be run, with its identity.

    Attributes:
        name: its path below `recipes/`, and of a series its point: `app/recipe@4`.
        path: its file.
        sha256: that of the file's bytes.
        recipe: what the file says, of a series at that point.
        card: the card of its app.
        nodes: on how many nodes it is run instead of those that it says; None: on those.
    """

    name: str
    path: Path
    sha256: str
    recipe: Recipe
    card: CardFile
    nodes: int | None = None


def _name(path: Path) -> str | None:
    folder = paths.of_folder(path)
    return None if folder in {"targets", "data"} else f"{folder}/{path.stem}"


_DEFINED = paths.Definitions("recipe", ("recipes/*/*.yaml",), _name)  # a series is one
names, files = _DEFINED.names, _DEFINED.files


def file_of(name: str) -> Path | None:
    """Return where the recipe called `name` is, which may name a point of it, if it is there."""
    return files().get(name.partition("@")[0])


def definition(name: str) -> Recipe:
    """Return what the file of a recipe says, of a series all of it.

    Raises:
        UsageError: no such recipe (the nearest are named) or faults in its file.
    """
    path = _DEFINED.file_of(name)
    recipe = strict.load(Recipe, path)
    _check_identity(path, recipe)
    strict.refuse(path, checks.faults(recipe, cards.load(recipe.app).card))
    _check_initial(path, recipe)
    return recipe


def load(name: str) -> RecipeFile:
    """Load the recipe called `name` (`<app>/<recipe>`, of a series `<app>/<recipe>@<point>`).

    Raises:
        UsageError: as `definition`; or `name` says no point of a series.
    """
    file = name.partition("@")[0]
    app = definition(file).app
    return load_copy(files()[file], name, cards.load(app))


def sized(name: str, nodes: int) -> RecipeFile:
    """Load the recipe called `name` for so many nodes: the largest such point of a series.

    Raises:
        UsageError: as `load`; or the series has no such point.
    """
    base, _, point = name.partition("@")
    recipe = definition(base)
    series = recipe.series
    if point or series is None:
        return on_nodes(load(name), nodes)
    fitting = [number for number in series.points if recipe.at(number).resources.nodes == nodes]
    if not fitting:
        raise UsageError(f"{base} has no point with {nodes} nodes (points over {series.over}:"
                         f" {', '.join(map(str, series.points))})")
    return load(f"{base}@{max(fitting)}")


def on_nodes(file: RecipeFile, nodes: int | None) -> RecipeFile:
    """Return a recipe as it is run on so many nodes, which another number makes another one."""
    if nodes is None or nodes == file.recipe.resources.nodes:
        return file
    resources = file.recipe.resources.model_copy(update={"nodes": nodes, "min_nodes": None})
    recipe = file.recipe.model_copy(update={"resources": resources})
    return replace(file, recipe=recipe, nodes=nodes)


def load_copy(path: Path, name: str, card: CardFile) -> RecipeFile:
    """Load the recipe called `name` from any place, such as the copy in a run directory.

    Its app's options may be others by now; what it expects must be in `card`.
    """
    recipe = strict.load(Recipe, path)
    strict.refuse(path, checks.expectation_faults(recipe, card.card))
    return RecipeFile(name, path, sha256(path), _at_point(recipe, name), card)


def _at_point(recipe: Recipe, name: str) -> Recipe:
    base, _, point = name.partition("@")
    if recipe.series is None:
        if point:
            raise UsageError(f"{base} is no series: it has no point {point}", hint=f"say {base}")
        return recipe
    points = {str(number): number for number in recipe.series.points}
    if point not in points:
        what = f"has no point {point}" if point else "is a series"
        raise UsageError(
            f"{base} {what} (points over {recipe.series.over}: {', '.join(points)})",
            hint=f"say which: {base}@{next(iter(points))}",
        )
    return recipe.at(points[point])


def _check_identity(path: Path, recipe: Recipe) -> None:
    """The path is the identity: `<app>/<target>[-<variant>]-<purpose>.yaml`.

    A family of targets (`cpu` for `cpu-2core`) may stand for the target, without a variant.
    """
    faults = []
    if path.parent.name != recipe.app:
        faults.append(f"{path}: app: '{recipe.app}' lies in the folder of '{path.parent.name}'")
    match = re.fullmatch(rf"(.+)-{recipe.purpose}", path.stem)
    if match is None:
        faults.append(f"{path}: purpose: the file name must end with '-{recipe.purpose}'")
    elif not (f"{match[1]}-".startswith(f"{recipe.target}-")
              or recipe.target.startswith(f"{match[1]}-")):
        faults.append(f"{path}: target: '{recipe.target}' does not begin with '{match[1]}'")
    if faults:
        raise UsageError("\n".join(faults), hint="a recipe's path is its identity")


def _check_initial(path: Path, recipe: Recipe) -> None:
    """Refuse a recipe that begins with what nobody knows."""
    before = recipe.initial
    try:
        if before is not None and before.weights is not None:
            weights.file_of(before.weights)
        elif before is not None and before.recipe is not None:
            _check_points(before, strict.load(Recipe, _DEFINED.file_of(before.recipe)))
    except UsageError as error:
        raise UsageError(f"{path}: initial: {error.message}", hint=error.hint) from None


def _check_points(before: Initial, other: Recipe) -> None:
    points = list(other.series.points) if other.series else []
    if list(before.steps) != points:
        told = ", ".join(map(str, points))
        raise UsageError(
            f"{before.recipe} is a series: say the step of each of its points ({told}) in 'steps'"
            if points else f"{before.recipe} is no series: say one 'step'"
        )
