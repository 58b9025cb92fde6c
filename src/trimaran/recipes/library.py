"""Find recipes by name, load and check them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trimaran import paths, strict
from trimaran.architectures import of_machine
from trimaran.data import contracts, weights
from trimaran.errors import UsageError, nearest
from trimaran.files import sha256
from trimaran.parsing import Location, Malformed, NotYaml, parse_yaml
from trimaran.recipes import cards, targets
from trimaran.recipes.cards import Argument, Card, CardFile
from trimaran.recipes.recipe import OWN_OPTIONS, SYNTHETIC, Initial, Recipe
from trimaran.terminal_safety import excerpt


@dataclass(frozen=True)
class RecipeFile:
    """A recipe that can be run, with its name and its file.

    Attributes:
        name: path below `recipes/`, with `@` and the point of a series (one run): `app/recipe@4`.
        path: path of the file.
        sha256: SHA-256 of the file.
        recipe: the recipe; for a series, the recipe of the point.
        card: the card of its app.
        nodes: number of nodes that replaces the recipe's number; None: it is not replaced.
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


_DEFINED = paths.Definitions("recipe", ("recipes/*/*.yaml",), _name)  # a series is one file
names, files = _DEFINED.names, _DEFINED.files


def file_of(name: str) -> Path | None:
    """Return the path of the recipe `name`, or None if the name is unknown.

    One file defines all runs (points) of a series. Therefore `@<point>` at the end of a name is
    ignored.
    """
    return files().get(name.partition("@")[0])


def definition(name: str) -> Recipe:
    """Return the checked content of a recipe's file, including all points of a series.

    Raises:
        UsageError: No recipe has this name (similar names are suggested), or its file has faults.
    """
    path = _DEFINED.file_of(name)
    recipe = strict.load(Recipe, path)
    _check_identity(path, recipe)
    strict.refuse(path, _recipe_faults(recipe, cards.load(recipe.app).card))
    _check_initial(name, path, recipe)
    return recipe


def load(name: str) -> RecipeFile:
    """Load the recipe `<app>/<recipe>`, or one run of a series: `<app>/<recipe>@<point>`.

    Raises:
        UsageError: No recipe has this name, its file has faults, the point does not exist, or the
            recipe is a series and `name` has no point.
    """
    file = name.partition("@")[0]
    app = definition(file).app
    return load_copy(files()[file], name, cards.load(app))


def sized(name: str, nodes: int) -> RecipeFile:
    """Load the recipe `name` for a number of nodes.

    If the recipe is a series, load the largest of its runs (points) with this number of nodes.

    Raises:
        UsageError: No recipe has this name, its file has faults, or the series has no run with
            this number of nodes.
    """
    base, _, point = name.partition("@")
    recipe = definition(base)
    series = recipe.series
    if point or series is None:
        return on_nodes(load(name), nodes)
    fitting = [number for number in series.points if recipe.at(number).resources.nodes == nodes]
    if not fitting:
        raise UsageError(f"{base} has no point with {nodes} nodes (points over {series.over}:"
                         f" {', '.join(map(str, series.points))})", code="point-unknown")
    return load(f"{base}@{max(fitting)}")


def on_nodes(file: RecipeFile, nodes: int | None) -> RecipeFile:
    """Return the recipe with the number of nodes `nodes`; None: return the recipe unchanged."""
    if nodes is None or nodes == file.recipe.resources.nodes:
        return file
    resources = file.recipe.resources.model_copy(update={"nodes": nodes, "min_nodes": None})
    recipe = file.recipe.model_copy(update={"resources": resources})
    return replace(file, recipe=recipe, nodes=nodes)


def load_copy(path: Path, name: str, card: CardFile) -> RecipeFile:
    """Load the recipe `name` from any path, such as the copy in a run directory.

    The options of its app may have changed since the copy was made, so only the expectations are
    checked, against `card`.

    Raises:
        UsageError: The file has faults, the point (run of a series) in `name` does not exist, or
            the recipe is a series and `name` has no point.
    """
    recipe = strict.load(Recipe, path)
    strict.refuse(path, recipe.expectation_faults(card.card))
    return RecipeFile(name, path, sha256(path), _at_point(recipe, name), card)


def _at_point(recipe: Recipe, name: str) -> Recipe:
    base, _, point = name.partition("@")
    if recipe.series is None:
        if point:
            raise UsageError(f"{base} is not a series: it has no point {point}",
                             code="point-unknown", hint=f"use {base}")
        return recipe
    points = {str(number): number for number in recipe.series.points}
    if point not in points:
        what = f"has no point {point}" if point else "is a series"
        raise UsageError(
            f"{base} {what} (points over {recipe.series.over}: {', '.join(points)})",
            code="point-unknown", hint=f"name a point: {base}@{next(iter(points))}",
        )
    return recipe.at(points[point])


def _check_identity(path: Path, recipe: Recipe) -> None:
    """Raise UsageError unless the path is `<app>/<target>[-<variant>]-<purpose>.yaml`.

    Without a variant, the first words of the target's name are sufficient (`cpu` for `cpu-2core`).
    """
    faults = []
    if path.parent.name != recipe.app:
        faults.append(f"{path}: app: '{recipe.app}' is in the folder of '{path.parent.name}'")
    match = re.fullmatch(rf"(.+)-{recipe.purpose}", path.stem)
    if match is None:
        faults.append(f"{path}: purpose: the file name must end with '-{recipe.purpose}'")
    elif not (f"{match[1]}-".startswith(f"{recipe.target}-")
              or recipe.target.startswith(f"{match[1]}-")):
        faults.append(f"{path}: target: '{recipe.target}' does not begin with '{match[1]}'")
    if faults:
        raise UsageError("\n".join(faults), code="recipe-misplaced",
                         hint="move the file: recipes/APP/TARGET[-VARIANT]-PURPOSE.yaml")


def _check_initial(name: str, path: Path, recipe: Recipe) -> None:
    """Raise UsageError if the key `initial` (initial weights) of the recipe `name` has a fault.

    Faults are unknown weights, an unknown recipe (which writes the checkpoint), recipes that start
    from each other, and a key that does not fit that recipe: a series needs `steps` with one step
    for each of its points, and any other recipe needs one `step`.
    """
    before = recipe.initial
    try:
        if before is not None and before.weights is not None:
            weights.file_of(before.weights)
        elif before is not None and before.recipe is not None:
            _check_points(before, strict.load(Recipe, _DEFINED.file_of(before.recipe)))
            _check_cycle(name, before.recipe)
    except UsageError as error:
        raise UsageError(f"{path}: initial: {error.message}", code=error.code,
                         hint=error.hint) from None


def _check_points(before: Initial, other: Recipe) -> None:
    points = list(other.series.points) if other.series else []
    if list(before.steps) != points:
        listed = ", ".join(map(str, points))
        raise UsageError(
            f"{before.recipe} is a series: give the step of each point ({listed}) in 'steps'"
            if points else f"{before.recipe} is not a series: give one 'step'",
            code="file-invalid",
        )


def _check_cycle(name: str, before: str) -> None:
    """Raise UsageError if recipes start from each other.

    Args:
        name: name of the recipe whose file is checked.
        before: name of the recipe from which it starts.
    """
    chain, following = [name], before
    while following not in chain:
        chain.append(following)
        path = files().get(following)
        # The file that names an unknown recipe is refused when it is loaded itself.
        initial = None if path is None else strict.load(Recipe, path).initial
        if initial is None or initial.recipe is None:
            return
        following = initial.recipe
    raise UsageError(
        f"recipes start from each other: {' -> '.join([*chain, following])}", code="file-invalid",
        hint="let the first recipe start without `initial`, or from published weights",
    )


Faults = Mapping[Location, str]
"""Key path in the recipe's file -> fault."""


def _recipe_faults(recipe: Recipe, card: Card) -> Faults:
    if recipe.verb not in card.verbs:
        problem = f"{recipe.app} has no verb '{recipe.verb}' ({nearest(recipe.verb, card.verbs)})"
        return {("verb",): problem}
    return {
        **_target_fault(recipe), **_data_fault(recipe, card), **_kind_faults(recipe, card),
        **recipe.expectation_faults(card), **_argument_faults(recipe), **_efficiency_fault(recipe),
    }


def _efficiency_fault(recipe: Recipe) -> Faults:
    """Return a fault if the recipe has the key `efficiency` outside of `series.points`."""
    if recipe.efficiency is None:
        return {}
    return {("efficiency",): "belongs to a point of a series, below series.points"}


def _target_fault(recipe: Recipe) -> Faults:
    if recipe.target not in targets.names():
        near = nearest(recipe.target, targets.names())
        return {("target",): f"unknown target '{recipe.target}' ({near})"}
    machine = targets.load(recipe.target).node.architecture  # raises for faults of the target
    pinned, wanted = recipe.image.digest, of_machine(machine)
    if isinstance(pinned, dict) and wanted not in pinned:
        return {("image", "digest"): (
            f"has the image for {', '.join(pinned)}, and the nodes of the target"
            f" '{recipe.target}' are {wanted or machine}"
        )}
    return {}


def _kind_faults(recipe: Recipe, card: Card) -> Faults:
    """Return a fault for each data set that has no contract or that the app cannot read."""
    found: dict[Location, str] = {}
    for name in recipe.data:
        if name not in contracts.names():
            found["data", name] = f"unknown data set '{name}' ({nearest(name, contracts.names())})"
        elif (word := contracts.load(name).kind.word) not in card.data.kinds:
            reads = ", ".join(card.data.kinds) or "no data"
            found["data", name] = f"the samples are '{word}', but {recipe.app} reads {reads}"
    return found


def _data_fault(recipe: Recipe, card: Card) -> Faults:
    """Return a fault if the recipe has more or fewer data sets than the app reads.

    A recipe that generates synthetic samples needs no data set.
    """
    count = len(recipe.data)
    least, most = {"zero": (0, 0), "one": (1, 1), "several": (1, count)}[card.data.sets]
    if recipe.args.get(SYNTHETIC) is True:
        least = 0
    if least <= count <= most:
        return {}
    return {("data",): f"{recipe.app} reads {card.data.sets} data set(s),"
                       f" but the recipe has {count}"}


def _argument_faults(recipe: Recipe) -> Faults:
    found: dict[Location, str] = {}
    for number, variant in recipe.variants():
        for key, fault in cards.argument_faults(variant.app, variant.verb, variant.args).items():
            found[_place(recipe, number, key)] = fault
    return found


def _place(recipe: Recipe, point: int | None, key: str) -> Location:
    """Return the key path of the argument `key` in the file of the recipe.

    If the run `point` of a series sets the argument itself, the path leads to the settings of this
    run, otherwise to `args` of the recipe.
    """
    if recipe.series is None or point is None or key not in recipe.series.points[point].args:
        return ("args", key)
    return ("series", "points", point, "args", key)


def parse_changes(settings: list[str]) -> dict[str, Argument]:
    """Parse `--set key=value` options; values are YAML scalars (`3`, `0.1`, `true`, `text`).

    Raises:
        UsageError: A setting is not `key=value`, its value is not a scalar, or Trimaran sets the
            option itself.
    """
    changes: dict[str, Argument] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting}: not key=value", code="argument-invalid",
                             hint="for example --set epochs=1")
        if key in OWN_OPTIONS:
            raise UsageError(f"--set {key}: Trimaran sets this option", code="argument-invalid",
                             hint=f"use --{key} instead")
        try:
            value = parse_yaml(text).content
        except NotYaml:
            value = text
        except Malformed as error:
            raise UsageError(f"--set {key}: {error}", code="argument-invalid") from error
        if not isinstance(value, bool | int | float | str):
            raise UsageError(
                f"--set {key}: {excerpt(text)} is not one number, one word, true or false",
                code="argument-invalid",
            )
        changes[key] = value
    return changes


def real_changes(recipe: Recipe, card: Card, changes: Mapping[str, Argument]) -> list[str]:
    """Return the options in `changes` that make the run a different experiment than the recipe.

    Options with the value of the recipe are left out, and so are the `neutral_options` of the card.
    """
    return [
        key
        for key, value in changes.items()
        if key not in card.neutral_options and recipe.args.get(key) != value
    ]
