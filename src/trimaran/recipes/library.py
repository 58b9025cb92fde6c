"""Where recipes are: found by name, loaded and checked."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from trimaran import paths, strict
from trimaran.errors import UsageError, unknown_name
from trimaran.recipes import options
from trimaran.recipes.recipe import Recipe


@dataclass(frozen=True)
class RecipeFile:
    """A recipe with its identity: `name` is its path below `recipes/`, `sha256` its bytes."""

    name: str
    path: Path
    sha256: str
    recipe: Recipe

    @property
    def data_name(self) -> str:
        """Name of the recipe's one data set."""
        return next(iter(self.recipe.data))


def names() -> list[str]:
    """Return the names of all recipes, sorted."""
    root = paths.repository() / "recipes"
    return sorted(
        f"{path.parent.name}/{path.stem}"
        for path in root.glob("*/*.yaml")
        if path.parent.name not in {"targets", "data"}
    )


def load(name: str) -> RecipeFile:
    """Load the recipe called `name` (`<app>/<recipe>`).

    Raises:
        UsageError: no such recipe (the nearest are named) or faults in its file.
    """
    if name not in names():
        raise unknown_name("recipe", name, names())
    path = paths.repository() / "recipes" / f"{name}.yaml"
    recipe = load_copy(path, name)
    _check_identity(path, recipe.recipe)
    _check_arguments(path, recipe.recipe)
    before = recipe.recipe.initial
    if before is not None and before.recipe not in names():
        unknown = unknown_name("recipe", before.recipe, names())
        raise UsageError(f"{path}: initial: {unknown.message}", hint=unknown.hint)
    return recipe


def load_copy(path: Path, name: str) -> RecipeFile:
    """Load the recipe called `name` from any place, such as the copy in a run directory."""
    recipe = strict.load(Recipe, path)
    return RecipeFile(name, path, hashlib.sha256(path.read_bytes()).hexdigest(), recipe)


def _check_arguments(path: Path, recipe: Recipe) -> None:
    faults = options.faults(recipe.app, recipe.args)
    if faults:
        raise UsageError("\n".join(
            f"{path}:{strict.line(path, ('args', key))}: args.{key}: {fault}"
            for key, fault in faults.items()
        ))


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
