"""Create the directory of a completed run, without running an engine or an app."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import yaml

from samples import GOOD, write_outcome
from trimaran.data import contracts
from trimaran.data.packing.idx import Images
from trimaran.files import sha256
from trimaran.launch.specification import LaunchSpec, Node
from trimaran.recipes import library
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.run import inputs, job_chain, launch_spec, run_directory
from trimaran.run.additions import Extension
from trimaran.run.launch_spec import Places
from trimaran.run.record import DataRecord, ImageRecord, JobRecord, RunRecord
from trimaran.run.site_settings import SiteSettings

IMAGE = ImageRecord(
    name="resnet-imagenet-torch-cpu", engine="host", reference="/venv", digest=None,
    inputs="ab" * 32,
)
SIF = IMAGE.model_copy(
    update={"engine": "apptainer", "reference": "/a.sif", "digest": "sha256:" + "ef" * 32}
)
FUNCTIONS = "main() { :; }\n"
"""The file with the shell functions that the script of a job loads."""

CONTRACT = contracts.load("fashion-mnist")
assert isinstance(CONTRACT, Images)
assert CONTRACT.packed is not None
DATA = DataRecord(name=CONTRACT.name, path="/data", sha256=CONTRACT.packed.sha256)


def write_recipe(checkout: Path, **more: object) -> RecipeFile:
    """Write the recipe GOOD into `checkout`, with some of its keys replaced."""
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({**GOOD, **more}))
    return library.load("resnet-imagenet/cpu-smoke")


def launch(
    recipe: RecipeFile, changed: dict[str, Argument], image: ImageRecord,
    data: DataRecord = DATA, *, extension: Extension | None = None,
    site: SiteSettings | None = None,
) -> LaunchSpec:
    """Return the launch specification of a run in /somewhere/run."""
    program = "/venv/bin/python" if image.engine == "host" else f"/usr/bin/{image.engine}"
    places = Places(
        {data.name: inputs.mount(recipe.recipe, data.name, data.path)}, "/somewhere/run"
    )
    return launch_spec.specification(
        recipe.recipe, changed, image.image, Node(program, image.reference, environment={"K": "v"}),
        places, module="app", extension=extension or Extension(), site=site or SiteSettings(),
    )


def start(
    directory: Path,
    recipe: RecipeFile,
    changed: dict[str, Argument] | None = None,
    image: ImageRecord = IMAGE,
) -> RunRecord:
    spec = launch(recipe, changed or {}, image)
    return run_directory.start(directory, recipe, changed or {}, image, [DATA], spec)


def finish(
    directory: Path,
    recipe: RecipeFile,
    accuracy: float = 0.95,
    changed: dict[str, Argument] | None = None,
    image: ImageRecord = IMAGE,
) -> RunRecord:
    """Create the directory of a completed run with the final accuracy `accuracy`, in [0, 1]."""
    record = start(directory, recipe, changed, image)
    [use] = recipe.recipe.data.values()
    write_outcome(directory, accuracy, counts=use.samples)
    return run_directory.finish(directory, record, "completed", 0)


def chain(directory: Path, checkout: Path, accuracy: float = 0.95) -> RunRecord:
    """Create the directory of a run that two Slurm jobs on two nodes have completed."""
    resources = {**GOOD["resources"], "nodes": 2, "tasks_per_node": 1}
    record = start(directory, write_recipe(checkout, launcher="srun", resources=resources),
                   image=SIF)
    write_outcome(directory, accuracy)
    host = record.host.model_dump(mode="json")
    folder = directory / job_chain.FOLDER
    folder.mkdir()
    (directory / job_chain.FUNCTIONS).write_text(FUNCTIONS)
    (directory / job_chain.SCRIPT).write_text("#!/bin/sh\n")
    (folder / "ids").write_text("41\n42\n")
    for number, status, before, after, why in (
        (1, 75, 0, 2, "its time was over"), (2, 0, 2, 2, "it came to its end"),
    ):
        name = f"link-{number:04}"
        (folder / f"{name}.json").write_text(json.dumps({
            "number": number, "job": str(40 + number), "started": f"2026-01-01T0{number}:00:00Z",
            "step": before, "hosts": [{**host, "hostname": "n1"}, {**host, "hostname": "n<2>"}],
        }))
        (folder / f"{name}.end.json").write_text(json.dumps({
            "ended": f"2026-01-01T0{number}:30:00Z", "exit_status": status, "step": after,
            "reason": why, "files": run_directory.hashes(directory) if status == 0 else {},
        }))
    assert record.launch is not None
    spec = replace(record.launch, task_starter=("srun",))
    command = record.command.model_copy(update={"argv": list(launch_spec.command(spec).argv)})
    job = JobRecord(scheduler="slurm", cluster="ours",
                    script_sha256=sha256(directory / job_chain.SCRIPT),
                    functions_sha256=sha256(directory / job_chain.FUNCTIONS))
    submitted = record.model_copy(
        update={"job": job, "status": "queued", "command": command, "launch": spec}
    )
    run_directory._write(directory, submitted)
    return submitted
