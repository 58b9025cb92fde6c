"""Each app trains for a minute in its container, on several ranks, and ends with a verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimaran import paths
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.recipes import library
from trimaran.reporting import Silent

WHOLE = "resnet-imagenet"
"""The app whose complete quickstart is executed by the test of the README."""

SMOKE = sorted(
    f"{file.parent.name}/{file.stem}"
    for file in (paths.repository() / "recipes").glob("*/cpu-*smoke.yaml")
    if file.parent.name != WHOLE and "2node" not in file.stem
)
LAUNCHERS = {"mpirun": "Open MPI", "torchrun": "torchrun", "none": None}
"""Launcher of a recipe -> its name in `environment.json`; None: one process."""


@pytest.mark.trains
@pytest.mark.alone
@pytest.mark.engine("apptainer")
@pytest.mark.timeout(1800)  # the images are built, the first time
@pytest.mark.usefixtures("user_cache")
@pytest.mark.parametrize("name", SMOKE)
def test_the_ranks_of_an_app_end_with_pass(name: str, tmp_path: Path) -> None:
    recipe = library.load(name).recipe
    image = definition.load(recipe.image.name)
    Apptainer().build(image, base=None, offline=False, reporter=Silent())
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", "from trimaran.cli import main; main()", "run", name,
         "--engine", "apptainer", "--out", str(out)],
        capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "160"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERDICT PASS" in done.stdout
    ranks = json.loads((out / "environment.json").read_text())["strategy"]
    assert ranks["launcher"] == LAUNCHERS[recipe.launcher]
    assert ranks["size"] == recipe.resources.tasks_per_node
