"""Apps that nothing of the tool names, in a folder of definitions: from there to the verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert "did you mean steps" in done.stderr
    assert list(own_place.iterdir()) == []
    assert not paths.cache().exists()


@pytest.mark.parametrize("name", IMAGES)
def test_the_generated_files_of_its_image_are_current(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.OWN, str(TOYS))
    render.check(definition.load(name))


@pytest.mark.engine("apptainer")
@pytest.mark.timeout(1800)  # the framework image is built, the first time
@pytest.mark.usefixtures("user_cache")
@pytest.mark.parametrize("recipe", RECIPES)
def test_two_ranks_in_its_container_end_with_a_verdict_on_its_own_metric(
    recipe: str, own_place: Path
) -> None:
    out = own_place / "run"
    done = trimaran("run", recipe, "--engine", "apptainer", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERDICT PASS" in done.stdout

    expected = json.loads((out / "verdict.json").read_text())["rows"]
    judged = {row["metric"] for row in expected if row["required"]}
    assert judged
    for metric in judged:
        assert metric in (out / "report.md").read_text()
    environment = json.loads((out / "environment.json").read_text())
    assert (environment["strategy"]["launcher"], environment["strategy"]["size"]) == ("Open MPI", 2)
    record = json.loads((out / "run.json").read_text())
    assert record["status"] == "completed"
    assert record["data"] == []

    told = trimaran("report", out, "--evidence", own_place / "evidence.json")
    assert told.returncode == 0, told.stderr
    assert judged <= set(_texts(json.loads((own_place / "evidence.json").read_text())))

    tested = trimaran("test-image", record["image"]["name"], "--engine", "apptainer")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def _texts(document: object) -> list[str]:
    """Return all texts in a JSON document."""
    if isinstance(document, dict):
        return [text for value in document.values() for text in _texts(value)]
    if isinstance(document, list):
        return [text for value in document for text in _texts(value)]
    return [document] if isinstance(document, str) else []
