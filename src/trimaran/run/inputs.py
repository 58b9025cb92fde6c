"""The data sets of a run: which are given, got if need be, and shown to the app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trimaran.data import cache, contracts
from trimaran.data.places import getting
from trimaran.engines import Engine, selection
from trimaran.errors import RunError, UsageError, nearest
from trimaran.launch.specification import Mount
from trimaran.launch.words import Text
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.recipe import Recipe
from trimaran.reporting import Reporter
from trimaran.run.record import DataRecord

INSIDE = "/data"
"""Where a container sees the data set, or each of several below it by its name."""


def below(recipe: Recipe, name: str) -> str:
    """Return where a data set is below the folder of all: there, if it is the only one."""
    return "" if len(recipe.data) == 1 else f"/{name}"


def given(recipe: RecipeFile, words: Sequence[str]) -> dict[str, Path]:
    """Return the packed data sets that `--data [NAME=]PATH` names, by name of the data set.

    Raises:
        UsageError: it is not said which one a path is, the recipe reads no such, or one twice.
    """
    known = recipe.recipe.data
    found: dict[str, Path] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or name not in known:
            if len(known) != 1:
                raise UsageError(f"--data {word}: {_choice(recipe, name if equals else None)}")
            name, path = next(iter(known)), word
        if name in found:
            raise UsageError(f"--data {word}: {name} is given twice")
        found[name] = Path(path)
    return found


def _choice(recipe: RecipeFile, name: str | None) -> str:
    known = recipe.recipe.data
    if not known:
        return f"{recipe.name} reads no data"
    if name is None:
        return f"say which data set it is, such as {next(iter(known))}=PATH"
    return f"{recipe.name} reads no data set '{name}' ({nearest(name, known)})"


def check(recipe: RecipeFile, folders: Mapping[str, Path], engine: Engine) -> None:
    """Raise UsageError for what `engine` cannot show to the app."""
    if len(recipe.recipe.data) > 1 and not engine.container:
        raise UsageError(
            f"{recipe.name} reads several data sets, which the engine {engine.name} cannot show as"
            " one folder",
            hint=f"use --engine {' or '.join(selection.containers())}",
        )
    for folder in folders.values():
        if cache.is_image(folder) and not engine.mounts_images:
            able = " or ".join(n for n, found in selection.every().items() if found.mounts_images)
            raise UsageError(
                f"--data {folder}: the engine {engine.name} mounts no images",
                hint=f"use --engine {able}, or give a folder",
            )


def places(recipe: RecipeFile, folders: Mapping[str, Path]) -> dict[str, Path]:
    """Return where each data set is or will be: as given, or in the cache."""
    return {
        name: (folders.get(name) or cache.folder(contracts.load(name), use.format)).absolute()
        for name, use in recipe.recipe.data.items()
    }


def missing(recipe: RecipeFile, folders: Mapping[str, Path]) -> list[str]:
    """Return what has to be done for each data set that is not here yet."""
    return [
        f"--data {folders[name]}: no packed data set is there" if name in folders
        else f"data set {name}: {getting(contracts.load(name), recipe.recipe.data[name].format)}"
        for name, place in places(recipe, folders).items()
        if not cache.is_image(place) and not (place / "dataset.json").is_file()
    ]


def prepare(
    recipe: RecipeFile, folders: Mapping[str, Path], *, offline: bool, reporter: Reporter
) -> list[DataRecord]:
    """Return the packed data sets, got if need be, with the SHA-256 of their `dataset.json`.

    Every shard of a folder is verified by its hash, those in a SquashFS image by their sizes.

    Raises:
        RunError: the data cannot be had, or are not what the recipe and its app need.
    """
    return [
        _prepared(recipe, name, folders.get(name), offline, reporter)
        for name in recipe.recipe.data
    ]


def _prepared(
    recipe: RecipeFile, name: str, folder: Path | None, offline: bool, reporter: Reporter
) -> DataRecord:
    contract, use = contracts.load(name), recipe.recipe.data[name]
    place = folder
    if place is None:  # every shard of it is verified there
        place = cache.get(contract, offline=offline, reporter=reporter, form=use.format)
    kinds = recipe.card.card.data.kinds
    digest = cache.check(contract, place, use.samples, use.format, kinds)
    if folder is not None and not cache.is_image(folder):
        faults = cache.verify_folder(contract, folder, records=False, reporter=reporter)
        if faults:
            raise RunError(
                "\n".join(faults), hint="pack it again into a new folder: trimaran data pack"
            )
    reporter.note(f"  {place}")
    return DataRecord(name=name, path=str(place.absolute()), sha256=digest)


def mounts(recipe: Recipe, folders: Mapping[str, Path]) -> dict[str, Mount]:
    """Return what has to be shown in the container: each data set, read-only, by name."""
    return {
        name: mount(recipe, name, str(folder.absolute()), image=cache.is_image(folder))
        for name, folder in folders.items()
    }


def mount(recipe: Recipe, name: str, source: Text, *, image: bool = False) -> Mount:
    """Return how the data set `name`, which is at `source`, is shown in the container."""
    return Mount(source, INSIDE + below(recipe, name), image=image)


def argument(data: Mapping[str, Mount], *, container: bool) -> str | None:
    """Return the folder that the app is given, or None where it reads no data."""
    if not data:
        return None
    return INSIDE if container else str(next(iter(data.values())).source)
