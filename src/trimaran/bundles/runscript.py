"""`run.sh` of a bundle: the command and the record of a run, as a shell script without paths.

The command comes from where `trimaran run` has it, and `run.json` from the same model:
stand-ins take the place of what only the other machine knows, and become shell variables.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimaran import __version__
from trimaran.data import contracts, places
from trimaran.engines import BuiltImage, Command, commands
from trimaran.engines.apptainer import Apptainer
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.options import Argument
from trimaran.runs import inputs, pipeline, rundir, shell
from trimaran.runs.record import DataRecord, GitRecord, ImageRecord, SignatureRecord
from trimaran.runs.rundir import CARD, LOCK, RECIPE

IMAGE = "image.sif"
DATA_SUMS = "data.sha256"


@dataclass(frozen=True)
class Contents:
    """What a `run.sh` is made for.

    Attributes:
        recipe: the recipe to run.
        changes: its arguments replaced by `--set`.
        built: the image, wherever it is now.
        signature: who has signed it, if recipe or site asked when it was packed.
        datasets: SHA-256 of each `dataset.json`, by name of the data set.
        included: whether the data are in the bundle.
        git: state of the checkout.
    """

    recipe: RecipeFile
    changes: Mapping[str, Argument]
    built: BuiltImage
    signature: SignatureRecord | None
    datasets: Mapping[str, str]
    included: bool
    git: GitRecord

    @property
    def getting(self) -> dict[str, str]:
        """The command that gets each data set, by its name."""
        used = self.recipe.recipe.data
        return {name: places.getting(contracts.load(name), used[name].format)
                for name in self.datasets}


def render(contents: Contents) -> str:
    """Return the text of `run.sh`.

    Raises:
        UsageError: an argument or variable of the recipe has control characters.
    """
    words, environment = _command(contents)
    values = {
        "script": "run.sh",
        "version": __version__,
        "recipe": contents.recipe.name,
        "recipe_word": shlex.quote(f"runs/{contents.recipe.name}"),
        "data": " and ".join(contents.datasets),
        "getting": list(contents.getting.values()),
        "folders": [inputs.below(contents.recipe.recipe, name) for name in contents.datasets],
        "included": contents.included,
        "image": IMAGE,
        "data_sums": DATA_SUMS,
        "signers": contents.recipe.recipe.image.signed_by,
        **shell.values(contents.built.name),
        "passed_on": commands.PASSED_ON,
        "environment": environment,
        "words": words,
        "record": _record(contents),
        "copies": (RECIPE, CARD),
        "lock": LOCK,
    }
    return shell.fill("trimaran.bundles", "run.sh.j2", values)


def _command(contents: Contents) -> tuple[list[str], list[str]]:
    """Return the words of the command and of its environment, as shell source."""
    recipe = contents.recipe
    # The comma has the engine quote the field of --mount, whatever the path will be.
    own = shell.stand_in()

    def exact(engine: Apptainer, built: BuiltImage) -> Command:
        folders = {
            name: Path(f"{own},data{inputs.below(recipe.recipe, name)}")
            for name in contents.datasets
        }
        request = pipeline.Request(recipe, engine, dict(contents.changes))
        return pipeline.command(request, built, folders, Path(f"{own},out"))

    stand_ins = {f"{own},data": "data_csv", f"{own},out": "out_csv"}
    return shell.command(contents.built, exact, stand_ins)


def _record(contents: Contents) -> str:
    """Return `run.json` as the text of a here-document; the script has a variable for each gap."""
    image = ImageRecord(**vars(contents.built), signature=contents.signature)
    data = [DataRecord(name=name, path="", sha256=digest)
            for name, digest in contents.datasets.items()]
    record = rundir.new_record(
        contents.recipe, dict(contents.changes), image, data, Command((), {}), contents.git
    )
    document = record.model_dump(mode="json")
    document["host"]["python"] = None  # the run needs no tool
    mark = secrets.token_hex(16)
    same = ("status", "started", "ended", "seconds", "exit_status", "files")
    _leave_open(document, mark, {key: key for key in same})
    _leave_open(document["image"], mark, {"reference": "image_path"})
    for number, data in enumerate(document["data"]):
        _leave_open(data, mark, {"path": f"data_path_{number}"})
    _leave_open(document["command"], mark, {"argv": "argv", "env": "environment", "shell": "shell"})
    _leave_open(document["host"], mark, {key: key for key in document["host"] if key != "python"})
    text = re.sub(r"[\\$`]", r"\\\g<0>", json.dumps(document, indent=2))
    return re.sub(f'"{mark}-([a-z0-9_]+)"', r"${\1}", text)


def _leave_open(part: dict[str, object], mark: str, variables: Mapping[str, str]) -> None:
    """Mark keys of `part` to be filled from the script's variables."""
    part.update({key: f"{mark}-{variable}" for key, variable in variables.items()})
