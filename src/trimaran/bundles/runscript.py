"""Render `run.sh` of a bundle: a shell script with the command and the `run.json` of a run.

The command and `run.json` are made by the same functions as in `trimaran run`. Shell variables
replace the values that only the machine without network can supply, such as paths.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimaran import __version__
from trimaran.architectures import MACHINES
from trimaran.data import cache, contracts
from trimaran.engines import BuiltImage, commands, store
from trimaran.engines.apptainer import Apptainer
from trimaran.launch import apptainer
from trimaran.launch.specification import (
    Command,
    LaunchSpec,
    ShellJson,
    Variable,
    join,
    json_source,
    shell_source,
)
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.run import inputs, node_scripts, pipeline, run_directory
from trimaran.run.launch_spec import Places
from trimaran.run.record import DataRecord, GitRecord, ImageRecord, SignatureRecord
from trimaran.run.request import Request
from trimaran.run.run_directory import CARD, COMPILED, LOCK, RECIPE

IMAGE = "image.sif"
DATA_SUMS = "data.sha256"


@dataclass(frozen=True)
class Contents:
    """The values from which `run.sh` is rendered.

    Attributes:
        recipe: the recipe to run.
        changes: arguments from `--set`, which replace arguments of the recipe.
        built: the image on this machine.
        signature: the verified signature of the image, if the recipe or the site file demands one.
        datasets: SHA-256 of each `dataset.json`, by name of the data set.
        included: whether the bundle contains the data.
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
        """The commands that download and pack the data sets, by the name of the data set."""
        used = self.recipe.recipe.data
        return {name: cache.getting(contracts.load(name), used[name].format)
                for name in self.datasets}


def render(contents: Contents) -> str:
    """Return the text of `run.sh`.

    Raises:
        UsageError: an argument or variable of the recipe has control characters.
    """
    launch = _launch(contents)
    line = apptainer.render(launch)
    own = launch.node.environment
    given = {name: value for name, value in line.environment.items() if name not in own}
    architecture = store.architecture_of(contents.built)
    values = {
        "version": __version__,
        "recipe": contents.recipe.name,
        "recipe_word": shlex.quote(f"runs/{contents.recipe.name}"),
        "data": " and ".join(contents.datasets),
        "getting": list(contents.getting.values()),
        "folders": [inputs.below(contents.recipe.recipe, name) for name in contents.datasets],
        "included": contents.included,
        "image": IMAGE,
        "machine": None if architecture is None else MACHINES[architecture],
        "data_sums": DATA_SUMS,
        "signers": contents.recipe.recipe.image.signed_by,
        "functions": node_scripts.functions(),
        "gpu_device": node_scripts.gpu_device(contents.built.name),
        "passed_on": commands.PASSED_ON,
        "engine_environment": node_scripts.assignments(own),
        "engine_options": " ".join(map(shell_source, launch.node.options)),
        "environment": node_scripts.assignments(given),
        "words": line.shell_words(),
        "record": _record(contents, launch),
        "copies": (RECIPE, CARD),
        "lock": LOCK,
        "compiled": COMPILED,
    }
    return node_scripts.fill("trimaran.bundles", "run.sh.j2", values)


def _launch(contents: Contents) -> LaunchSpec:
    """Return the launch specification of the run that the bundle starts.

    Shell variables stand for values that only the machine that unpacks the bundle can provide.
    """
    recipe = contents.recipe.recipe
    data = {
        name: inputs.mount(recipe, name, join(Variable("data"), inputs.below(recipe, name)))
        for name in contents.datasets
    }
    request = Request(contents.recipe, Apptainer("apptainer"), dict(contents.changes))
    node = node_scripts.node(contents.built.name)
    return pipeline.specify(request, contents.built, node, Places(data, Variable("out")))


def _record(contents: Contents, launch: LaunchSpec) -> str:
    image = ImageRecord(**vars(contents.built), signature=contents.signature)
    data = [DataRecord(name=name, path="", sha256=digest)
            for name, digest in contents.datasets.items()]
    record = run_directory.new_record(
        contents.recipe, dict(contents.changes), image, data, launch, Command((), {}), contents.git
    )
    document = record.model_dump(mode="json")
    document["host"]["python"] = None  # the run does not need the host's Python
    same = ("status", "started", "ended", "seconds", "exit_status", "files")
    document |= {key: ShellJson(f"${{{key}}}") for key in same}
    document["image"]["reference"] = ShellJson("${image_path}")
    for number, one in enumerate(document["data"]):
        one["path"] = ShellJson(f"${{data_path_{number}}}")
    for key, variable in {"argv": "argv", "env": "environment", "shell": "shell"}.items():
        document["command"][key] = ShellJson(f"${{{variable}}}")
    document["host"] |= {key: ShellJson(f"${{{key}}}") for key in document["host"]
                         if key != "python"}
    document["launch"] = _launch_document(launch, document["launch"])
    return json_source(document)


def _launch_document(launch: LaunchSpec, document: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of `launch`, with shell variables in place of some values.

    These values are only known on the machine that unpacks the bundle.
    """
    document["image"]["reference"] = ShellJson("${image_path}")
    document["node"] |= {
        "program": ShellJson("${engine_path}"),
        "image": ShellJson("${image_path}"),
        "options": ShellJson("${engine_options}"),
        "environment": ShellJson("${engine_environment}"),
    }
    for mount, written in zip(launch.mounts, document["mounts"], strict=True):
        written["source"] = ShellJson(f"$(json {shell_source(mount.source)})")
    return document
