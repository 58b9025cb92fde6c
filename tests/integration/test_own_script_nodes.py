"""The job of the page "Your own script" on two nodes of Slurm: two ranks train as one process."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ownscripts import (
    ENVIRONMENT,
    SCRIPTS,
    apptainer,
    assert_as_one,
    sif,
    started,
    trained,
    write_data,
)
from trimaran import process
from trimaran.engines.apptainer import Apptainer


@pytest.mark.trains
@pytest.mark.engine("apptainer")
@pytest.mark.engine("slurm")
@pytest.mark.timeout(1800)  # images are built, the first time
@pytest.mark.usefixtures("user_cache")
def test_each_step_of_the_job_trains_as_one_process(slurm: Path, own_place: Path) -> None:
    write_data(own_place / "fashion.npz")
    shutil.copytree(SCRIPTS, own_place / "scripts")
    path = os.pathsep.join([str(Path(Apptainer().executable).parent), os.environ["PATH"]])
    env = {**ENVIRONMENT, "PATH": path, "SLURM_CONF": str(slurm / "slurm.conf"),
           "TENSORFLOW": sif("tensorflow-cpu"), "TORCH": sif("torch-cpu")}
    done = process.run(["sbatch", "--wait", "scripts/job.sh"], env=env, cwd=own_place)
    output = (own_place / "job.txt").read_text()
    assert done.returncode == 0, done.stderr + output

    alone = {
        framework: trained(started([{}], apptainer(
            "run", image, f"scripts/{framework}_plain.py", "fashion.npz"), own_place))
        for framework, image in (("keras", "tensorflow-cpu"), ("torch", "torch-cpu"))
    }
    ranks = trained(output)
    assert len(ranks.losses) == 8  # two ranks for each step of the job
    for first, framework in ((0, "keras"), (2, "keras"), (4, "torch"), (6, "torch")):
        assert_as_one(ranks.part(slice(first, first + 2)), alone[framework])
