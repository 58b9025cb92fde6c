"""Every recipe for several nodes renders as a batch script for the clusters of the example site."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from refusals import refused
from trimaran import paths, site_file
from trimaran.cluster import submission
from trimaran.cluster.script import SCHEDULERS
from trimaran.engines.apptainer import Apptainer
from trimaran.recipes import library
from trimaran.run.request import Request

SITE = site_file.load(paths.repository() / "site/docs/tutorials/example-site.yaml")


def recipes() -> Iterator[str]:
    """Yield the names of recipes that need several nodes; NAME@POINT names one run of a series."""
    for name in library.names():
        for point, recipe in library.definition(name).variants():
            if recipe.resources.nodes > 1:
                yield name if point is None else f"{name}@{point}"


MANY = list(recipes())

LONGEST = 125
"""Maximum number of lines of a batch script."""


def preview(name: str, cluster: str, initial: Path | None = None) -> str:
    request = Request(
        recipe=library.load(name), engine=Apptainer("apptainer"), changes={}, initial=initial,
        site=SITE, queued=True, offline=True,
    )
    return submission.preview(request, SITE.clusters[cluster])


def test_there_are_such_recipes() -> None:
    assert "resnet-imagenet/skx8160-convergence" in MANY
    assert "resnet-imagenet/gtx1080ti-x4-scaling@64" in MANY
    assert len(MANY) >= 14


@pytest.mark.parametrize("name", MANY)
def test_a_recipe_of_many_nodes_is_a_script(name: str, tmp_path: Path) -> None:
    before = library.load(name).recipe.initial
    first = None
    if before is not None and before.recipe is not None:
        first = tmp_path / next(iter(before.files))
        first.touch()
    resources = library.load(name).recipe.resources
    texts = {}
    for cluster, facts in SITE.clusters.items():
        if resources.min_nodes is not None and facts.scheduler != "slurm":
            with refused("scheduler-unsupported", "min_nodes"):
                preview(name, cluster, first)
        else:
            texts[cluster] = preview(name, cluster, first)
    assert f"#SBATCH --nodes={resources.nodes}\n" in texts["skylake"]
    assert f"#SBATCH --ntasks-per-node={resources.tasks_per_node}\n" in texts["skylake"]
    assert "#SBATCH --account=project-1\n" in texts["gpus"]
    if resources.min_nodes is None:
        assert f"#PBS -l select={resources.nodes}:" in texts["pbs"]
        assert f"#BSUB -nnodes {resources.nodes}\n" in texts["summit-like"]
    for text in texts.values():  # shellcheck looks at each kind of script in test_script.py
        assert len(text.splitlines()) <= LONGEST
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_the_published_run_on_448_nodes() -> None:
    text = preview("resnet-imagenet/skx8160-convergence", "skylake")
    [launch] = [line for line in text.splitlines() if "job.sh task" in line]
    assert "--ntasks-per-socket=1" in launch
    assert "--cpu-bind=cores" in launch
    assert "APPTAINERENV_OMP_NUM_THREADS=22" in text
    assert "#SBATCH --signal=B:USR1@300\n" in text
    assert "data1=/project/data/imagenet-2012" not in text, "it is not there: the cache's is named"


def test_every_batch_system_is_shown() -> None:
    assert {one.scheduler for one in SITE.clusters.values()} == set(SCHEDULERS)
