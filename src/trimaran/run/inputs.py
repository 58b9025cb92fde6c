"""Prepare the data sets and the initial checkpoint of a run, and mount them for the app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trimaran.data import cache, contracts, dataset_json, weights
from trimaran.data.cache import getting
from trimaran.engines import Engine, selection
from trimaran.errors import RunError, UsageError, nearest
from trimaran.files import sha256
from trimaran.launch.specification import Mount, Text
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.recipe import Recipe
from trimaran.reporting import Reporter
from trimaran.run.launch_spec import INSIDE
from trimaran.run.record import DataRecord, InitialRecord


def below(recipe: Recipe, name: str) -> str:
    """Return the subfolder of the data set `name` below `INSIDE`, the data folder in the container.

    Return "" if the recipe has only one data set, which is mounted at `INSIDE` itself.
    """
    return "" if len(recipe.data) == 1 else f"/{name}"


def given(recipe: RecipeFile, words: Sequence[str]) -> dict[str, Path]:
    """Parse the values `[NAME=]PATH` of `--data`; return name of the data set -> its path.

    Raises:
        UsageError: a path lacks the name of its data set, or a name is unknown or given twice.
    """
    known = recipe.recipe.data
    found: dict[str, Path] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or name not in known:
            if len(known) != 1:
                raise _unclear(recipe, word, name if equals else None)
            name, path = next(iter(known)), word
        if name in found:
            raise UsageError(f"--data {word}: {name} is given twice", code="argument-invalid",
                             hint="give each data set once")
        found[name] = Path(path)
    return found


def _unclear(recipe: RecipeFile, word: str, name: str | None) -> UsageError:
    known = recipe.recipe.data
    if not known:
        return UsageError(f"--data {word}: {recipe.name} reads no data", code="data-unused",
                          hint="leave out --data")
    if name is None:
        return UsageError(f"--data {word}: {recipe.name} reads several data sets",
                          code="data-unnamed", hint=f"name the data set: {next(iter(known))}=PATH")
    return UsageError(f"--data {word}: {recipe.name} reads no data set '{name}'",
                      code="data-unused", hint=nearest(name, known))


def check(recipe: RecipeFile, folders: Mapping[str, Path], engine: Engine) -> None:
    """Check that `engine` can mount the data sets of the recipe.

    Raises:
        UsageError: the engine cannot mount several data sets, or a file system image.
    """
    if len(recipe.recipe.data) > 1 and not engine.container:
        raise UsageError(
            f"{recipe.name} reads several data sets, which the engine {engine.name} cannot mount"
            " in one folder",
            code="engine-unsuitable",
            hint=f"use --engine {' or '.join(selection.containers())}",
        )
    for folder in folders.values():
        if cache.is_image(folder) and not engine.mounts_images:
            able = " or ".join(n for n, found in selection.every().items() if found.mounts_images)
            raise UsageError(
                f"--data {folder}: the engine {engine.name} mounts no images",
                code="engine-unsuitable",
                hint=f"use --engine {able}, or give a folder",
            )


def places(recipe: RecipeFile, folders: Mapping[str, Path]) -> dict[str, Path]:
    """Return name -> path of each data set of the recipe.

    The path is the user's path in `folders` (from `--data`), or else the path in the cache.
    """
    return {
        name: (folders.get(name) or cache.folder(contracts.load(name), use.format)).absolute()
        for name, use in recipe.recipe.data.items()
    }


def missing(recipe: RecipeFile, folders: Mapping[str, Path]) -> list[str]:
    """Return a line for each missing data set, with the command that makes it."""
    return [
        f"--data {folders[name]}: no packed data set" if name in folders
        else f"data set {name}: {getting(contracts.load(name), recipe.recipe.data[name].format)}"
        for name, place in places(recipe, folders).items()
        if not cache.is_image(place) and not (place / "dataset.json").is_file()
    ]


def title(recipe: RecipeFile) -> str:
    """Return the title of the step that prepares the data; it lists the names of the data sets."""
    return "data: " + (", ".join(recipe.recipe.data) or "none")


def prepare(
    recipe: RecipeFile, folders: Mapping[str, Path], *, offline: bool, reporter: Reporter
) -> list[DataRecord]:
    """Get missing data sets, and return all of them with the SHA-256 of their `dataset.json`.

    Shards in a folder are verified by their hashes, and shards in a SquashFS image by their sizes.

    Raises:
        RunError: the data are not available, or do not satisfy the recipe and its app.
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
    if place is None:  # `cache.get` verifies every shard
        place = cache.get(contract, offline=offline, reporter=reporter, form=use.format)
    kinds = recipe.card.card.data.kinds
    digest = cache.check(contract, place, use.samples, use.format, kinds)
    if folder is not None and not cache.is_image(folder):
        faults = dataset_json.verify_folder(contract, folder, records=False, reporter=reporter)
        if faults:
            raise RunError(
                "\n".join(faults), code="data-damaged",
                hint="pack it again into a new folder: trimaran data pack",
            )
    reporter.note(f"  {place}")
    return DataRecord(name=name, path=str(place.absolute()), sha256=digest)


def mounts(recipe: Recipe, folders: Mapping[str, Path]) -> dict[str, Mount]:
    """Return the read-only mount of each data set, by name."""
    return {
        name: mount(recipe, name, str(folder.absolute()), image=cache.is_image(folder))
        for name, folder in folders.items()
    }


def mount(recipe: Recipe, name: str, source: Text, *, image: bool = False) -> Mount:
    """Return the mount of the data set `name`, whose path on the host is `source`."""
    return Mount(source, INSIDE + below(recipe, name), image=image)


INITIAL_INSIDE = "/initial"
"""Path of the initial checkpoint in the container, without its suffix."""

OTHER_RUN = Path("/RUN/checkpoints")
"""Placeholder in a printed command: the checkpoint folder of a run that must be made first."""


def check_initial(
    recipe: RecipeFile, given: Path | None, *, to_print: bool = False, to_come: bool = False
) -> None:
    """Check that `given` is the initial checkpoint of the recipe.

    Args:
        recipe: the recipe.
        given: value of `--initial`.
        to_print: whether the command is only printed. Then `given` can be None, and the printed
            command contains a placeholder.
        to_come: whether another run writes the file later, so that it need not exist yet.

    Raises:
        UsageError: the file is missing or not the right file, or the recipe starts from no file.
    """
    asked = recipe.recipe.initial
    if asked is None:
        if given is not None:
            raise UsageError(
                f"--initial {given}: {recipe.name} does not start from a checkpoint",
                code="arguments-conflict",
                hint="leave --initial out, or run the recipe of the second stage",
            )
        return
    if asked.weights is not None:
        known = weights.load(asked.weights)
        if given is not None and not known.content.is_in(given):
            raise UsageError(f"--initial {given} has another SHA-256 than {asked.weights}",
                             code="initial-invalid",
                             hint="leave --initial out: the weights are downloaded")
        return
    if given is None and to_print:
        return
    what = f"{recipe.name} starts from the checkpoint of {' or '.join(asked.files.values())}"
    files = " or ".join(f"RUN/checkpoints/{name}" for name in asked.files)
    hint = f"give --initial {files}, of a run of that recipe"
    if given is None:
        raise UsageError(what, code="initial-missing", hint=hint)
    if not given.is_file() and not to_come:
        raise UsageError(f"--initial {given}: no such file", code="file-missing", hint=hint)
    if given.name not in asked.files:
        raise UsageError(f"--initial {given}: {what}", code="initial-invalid", hint=hint)


def prepare_initial(
    recipe: RecipeFile, given: Path | None, *, offline: bool, reporter: Reporter
) -> Path | None:
    """Return the file that the run starts from, after downloading weights if needed.

    Raises:
        RunError: no source supplies the weights.
        Interrupted: the user stopped the download.
    """
    asked = recipe.recipe.initial
    if given is not None or asked is None or asked.weights is None:
        return given
    return weights.get(weights.load(asked.weights), offline=offline, reporter=reporter)


def planned_initial(recipe: RecipeFile, given: Path | None) -> tuple[Path | None, list[str]]:
    """Return the file that the run would start from, and lines that name what is still missing.

    The file is `given`, published weights, or a placeholder; None if the recipe starts from no
    file. The lines name, for example, a run of another recipe that must write the file first.
    """
    asked = recipe.recipe.initial
    if given is not None or asked is None:
        return given, []
    if asked.weights is None:
        files = " or ".join(asked.files)
        return OTHER_RUN / next(iter(asked.files)), [
            f"a run of {asked.recipe}; then --initial RUN/checkpoints/{files}, in place of"
            f" {OTHER_RUN}"
        ]
    known = weights.load(asked.weights)
    path = weights.place(known)
    exists = known.content.is_in(path)
    return path, [] if exists else [f"weights {known.name}: the run downloads them"]


def initial_mounts(given: Path | None) -> list[Mount]:
    """Return the read-only mount of the initial checkpoint `given`; [] if `given` is None."""
    return [Mount(str(given.absolute()), INITIAL_INSIDE + given.suffix)] if given else []


def initial_record(given: Path | None, *, to_come: bool = False) -> InitialRecord | None:
    """Return the entry of `run.json` for the initial checkpoint `given`, or None without one.

    If `to_come` is true, another run writes the file later, and the job records its SHA-256.
    """
    if given is None:
        return None
    return InitialRecord(path=str(given.absolute()), sha256=None if to_come else sha256(given))
