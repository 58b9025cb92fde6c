"""A run that has ended, without an engine and an app: what a verdict is judged from."""

from __future__ import annotations

from pathlib import Path

import yaml

from samples import GOOD, write_outcome
from trimaran.data import contracts
from trimaran.data.contracts import Images
from trimaran.engines import Command
from trimaran.recipes import library
from trimaran.recipes.command import app_arguments
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.options import Argument
from trimaran.runs import rundir
from trimaran.runs.record import DataRecord, ImageRecord, RunRecord

IMAGE = ImageRecord(
    name="resnet-imagenet-torch-cpu", engine="host", reference="/venv", digest=None,
    inputs="ab" * 32,
)
SIF = IMAGE.model_copy(
    update={"engine": "apptainer", "reference": "/a.sif", "digest": "sha256:" + "ef" * 32}
)
CONTRACT = contracts.load("fashion-mnist")
assert isinstance(CONTRACT, Images)
assert CONTRACT.packed is not None
DATA = DataRecord(name=CONTRACT.name, path="/data", sha256=CONTRACT.packed.sha256)


def write_recipe(checkout: Path) -> RecipeFile:
    """Write the recipe GOOD into `checkout`."""
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(GOOD))
    return library.load("resnet-imagenet/cpu-smoke")


def command(recipe: RecipeFile, changed: dict[str, Argument], image: ImageRecord) -> Command:
    """Return a command as the engine of `image` gives it, as far as a verdict looks at it."""
    head, place, out = ["/venv/bin/python", "-m", "app"], DATA.path, "/somewhere/run"
    prefix = ""
    if image.engine == "apptainer":
        head, place, out = ["/usr/bin/apptainer", "run", image.reference], "/data", "/out"
        prefix = "APPTAINERENV_"
    env = {f"{prefix}{key}": value for key, value in recipe.recipe.env.items()}
    words = app_arguments(recipe.recipe, changed, data=place, out=out)
    return Command((*head, *words), {"K": "v", **env})


def start(
    directory: Path,
    recipe: RecipeFile,
    changed: dict[str, Argument] | None = None,
    image: ImageRecord = IMAGE,
) -> RunRecord:
    exact = command(recipe, changed or {}, image)
    return rundir.start(directory, recipe, changed or {}, image, [DATA], exact)


def finish(
    directory: Path,
    recipe: RecipeFile,
    accuracy: float = 0.95,
    changed: dict[str, Argument] | None = None,
    image: ImageRecord = IMAGE,
) -> RunRecord:
    """Make the directory of a run that has ended with this accuracy."""
    record = start(directory, recipe, changed, image)
    [use] = recipe.recipe.data.values()
    write_outcome(directory, accuracy, counts=use.samples)
    return rundir.finish(directory, record, "completed", 0)
