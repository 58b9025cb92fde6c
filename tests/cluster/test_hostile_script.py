"""Hostile names and values in the script of a job: the shell executes no part of them.

The scripts run with stand-ins for the commands of Slurm, PBS and LSF, and for Apptainer.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from jobplaces import Place, describe, make
from refusals import refused
from trimaran.cluster import script
from trimaran.cluster.script import SCHEDULERS, Job
from trimaran.errors import UsageError
from trimaran.site_file import Cluster

HOSTILE = "'\"$(touch owned)`touch owned`;touch owned;"
ODD = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20)
NAMES = ODD.map(lambda text: f"a{text.replace('/', '')}{HOSTILE}")
FOLDERS = NAMES.map(lambda name: name.replace(":", ""))  # a folder in PATH cannot have it


def with_env(job: Job, **env: str) -> Job:
    """Return a copy of `job` whose recipe also sets the environment variables `env`."""
    file = job.request.recipe
    recipe = file.recipe.model_copy(update={"env": {**file.recipe.env, **env}})
    return replace(job, request=replace(job.request, recipe=replace(file, recipe=recipe)))


def hostile(root: Path, scheduler: str, run: str, value: str) -> Place:
    """Return a job in which every path and every freely chosen value is hostile shell text."""
    site = Cluster.model_validate({
        "scheduler": scheduler, "mpi": "none", "env": {"NCCL_NOTE": value}, "stage_data": True,
        "local_storage": root / f"own {run}", "apptainer": root / "bin/apptainer",
    })
    place = make(root, run, {"note": value}, site)
    place.install(script.render(with_env(place.job, RECIPES_NOTE=value)))
    return place


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=5, deadline=None)
@given(folder=FOLDERS, run=NAMES, value=ODD.map(lambda text: text + HOSTILE))
@example(folder="a=b", run="c=d", value="e=f")
def test_nothing_of_a_path_or_value_is_executed(
    tmp_path_factory: pytest.TempPathFactory, scheduler: str, folder: str, run: str, value: str
) -> None:
    place = hostile(tmp_path_factory.mktemp("p") / folder, scheduler, run, value)
    code, said = place.run()
    assert code == 0, said
    words, variables = place.recorded("argv"), place.recorded("env")
    assert f"--note={value}" in words
    assert f"APPTAINERENV_NCCL_NOTE={value}" in variables
    assert f"APPTAINERENV_RECIPES_NOTE={value}" in variables
    assert f"{place.root}/own {run}/trimaran-7-node/image.sif" in words
    assert not list(place.root.parent.rglob("owned"))


def lines(scheduler: str, **more: str) -> list[str]:
    """Return the lines of the job script for a cluster with `more` in its site file."""
    site = Cluster.model_validate({"scheduler": scheduler, **more})
    text = script.render(describe(Path("/example"), "run", {}, site))
    return text.splitlines()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=20, deadline=None)
@given(key=st.sampled_from(["constraint", "partition", "account", "qos", "gres", "mpi"]),
       value=st.text(max_size=20) | st.from_regex(r"[A-Za-z0-9&|*()=-]{1,9}\n?", fullmatch=True))
def test_a_name_for_the_batch_system_stays_in_its_line_or_is_refused(
    scheduler: str, key: str, value: str
) -> None:
    try:
        named = lines(scheduler, **{key: value})
    except (ValidationError, UsageError):
        return
    subprocess.run(["sh", "-n"], input="\n".join(named), text=True, check=True)
    plain = lines(scheduler)
    directive = SCHEDULERS[scheduler].directive
    more = [line for line in named if line not in plain and line.startswith("#")]
    assert len(more) <= 1
    assert all(line.startswith(directive) and value in line for line in more)


CONTROL = "a\n#SBATCH --account=other"


@pytest.mark.parametrize(
    "change",
    [
        lambda job: replace(job, directory=Path("/example") / CONTROL),
        lambda job: replace(job, built=replace(job.built, reference=f"/{CONTROL}")),
        lambda job: replace(job, data=[
            job.data[0].model_copy(update={"path": f"/{CONTROL}"})
        ]),
        lambda job: replace(job, cluster=Cluster(env={"NCCL_NOTE": CONTROL})),
        lambda job: with_env(job, NOTE=CONTROL),
    ],
    ids=["run", "image", "data", "site", "recipe"],
)
def test_control_characters_are_refused(change: Any) -> None:
    with refused("control-characters", "#SBATCH", kind=UsageError):
        script.render(change(describe(Path("/example"), "run", {}, Cluster())))
