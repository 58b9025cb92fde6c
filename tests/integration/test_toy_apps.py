"""Run apps that only a folder of definitions (`tests/toys`) describes, and check the verdicts.

The source code of Trimaran does not name these apps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from trimaran import paths
from trimaran.images import definition, render

TOYS = paths.repository() / "tests/toys"
RECIPES = sorted(f"{file.parent.name}/{file.stem}" for file in TOYS.glob("recipes/*/*.yaml"))
IMAGES = sorted(file.parent.name for file in TOYS.glob("containers/*/*/image.yaml"))


def trimaran(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from trimaran.cli import main; main()", *map(str, words),
         "--recipes", str(TOYS)],
        capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "160"},
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_misspelt_option_is_refused_before_anything_is_made(
    recipe: str, own_place: Path
) -> None:
    done = trimaran("run", recipe, "--engine", "host", "--out", "run", "--set", "step=5")
    assert done.returncode == 2
    assert "[argument-invalid]" in done.stderr
    assert "mean steps" in done.stderr
    assert list(own_place.iterdir()) == []
    assert not paths.cache().exists()


@pytest.mark.parametrize("name", IMAGES)
def test_the_generated_files_of_its_image_are_current(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.OWN, str(TOYS))
    render.check(definition.load(name))


@pytest.mark.trains
@pytest.mark.engine("apptainer")
@pytest.mark.timeout(1800)  # the framework image is built, the first time
@pytest.mark.usefixtures("user_cache")
@pytest.mark.parametrize(
    "recipe", [RECIPES[0], *(pytest.param(name, marks=pytest.mark.long) for name in RECIPES[1:])]
)
def test_two_ranks_in_its_container_end_with_a_verdict_on_its_own_metric(
    recipe: str, own_place: Path
) -> None:
    out = own_place / "run"
    done = trimaran("run", recipe, "--engine", "apptainer", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERDICT PASS" in done.stdout

    record = json.loads((out / "run.json").read_text())
    assert (record["status"], record["data"]) == ("completed", [])
    ranks = json.loads((out / "environment.json").read_text())["strategy"]
    assert (ranks["launcher"], ranks["size"]) == ("Open MPI", 2)

    told = trimaran("report", out, "--evidence", own_place / "evidence.json")
    assert told.returncode == 0, told.stderr
    rows = json.loads((own_place / "evidence.json").read_text())["verdict"]["rows"]
    card = yaml.safe_load((TOYS / "apps" / recipe.split("/")[0] / "app.yaml").read_text())
    judged = [row["metric"] for row in rows if row["required"]]
    assert judged
    assert set(judged) <= card["metrics"].keys()
    assert all(f"| {metric} (end) |" in (out / "report.md").read_text() for metric in judged)

    tested = trimaran("test-image", record["image"]["name"], "--engine", "apptainer")
    assert tested.returncode == 0, tested.stdout + tested.stderr
