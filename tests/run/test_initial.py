"""Test recipes that start from a checkpoint of another recipe."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from commandline import of_run
from refusals import refused
from samples import GOOD
from trimaran.bundles import pack
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import UsageError
from trimaran.recipes import library
from trimaran.recipes.library import RecipeFile
from trimaran.reporting import Silent
from trimaran.run import inputs, pipeline
from trimaran.run.request import Request

FIRST, SECOND = "resnet-imagenet/cpu-smoke", "resnet-imagenet/cpu-2core-collapsed-smoke"
FILE = "step-00007638.npz"


@pytest.fixture
def second(checkout: Path) -> RecipeFile:
    """Return a recipe that starts from step 7638 of another recipe."""
    more: dict[str, Any] = {"initial": {"recipe": FIRST, "step": 7638}}
    for name, content in ((FIRST, GOOD), (SECOND, GOOD | more)):
        path = checkout / f"recipes/{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(content))
    return library.load(SECOND)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / FILE
    path.write_bytes(b"weights")
    return path


@pytest.mark.usefixtures("tiny_image")
def test_the_checkpoint_is_bound_read_only_and_given_to_the_app(
    second: RecipeFile, checkpoint: Path, tmp_path: Path
) -> None:
    engine = Apptainer("/usr/bin/apptainer")
    request = Request(second, engine, {}, initial=checkpoint)
    pipeline.check(request)
    built = BuiltImage("tiny", "apptainer", "/tiny.sif", "sha256:0", "0", 1)
    exact = of_run(request, built, {"fashion-mnist": tmp_path}, tmp_path / "run")
    assert exact.argv[-1] == "--initial=/initial.npz"
    assert f"type=bind,source={checkpoint},destination=/initial.npz,ro" in exact.argv


def test_run_json_says_which_checkpoint_it_was(checkpoint: Path) -> None:
    found = inputs.initial_record(checkpoint)
    assert found is not None
    assert json.loads(found.model_dump_json()) == {
        "path": str(checkpoint), "sha256": hashlib.sha256(b"weights").hexdigest()
    }
    assert inputs.initial_record(None) is None


def test_without_the_checkpoint_the_error_names_it(second: RecipeFile) -> None:
    with refused("initial-missing", f"step 7638 of {FIRST}") as caught:
        inputs.check_initial(second, None)
    assert f"--initial RUN/checkpoints/{FILE}" in str(caught.value.hint)


def test_what_is_only_printed_says_what_comes_first(
    second: RecipeFile, checkpoint: Path, tmp_path: Path
) -> None:
    inputs.check_initial(second, None, to_print=True)
    path, [missing] = inputs.planned_initial(second, None)
    assert path == Path("/RUN/checkpoints") / FILE
    for named in (FIRST, f"--initial RUN/checkpoints/{FILE}", "/RUN/checkpoints"):
        assert named in missing
    assert inputs.planned_initial(second, checkpoint) == (checkpoint, [])
    with refused("file-missing", tmp_path / "a"):  # a given file is checked
        inputs.check_initial(second, tmp_path / "a", to_print=True)


def test_a_checkpoint_of_another_step_is_refused(second: RecipeFile, tmp_path: Path) -> None:
    other = tmp_path / "step-00007650.npz"
    with refused("file-missing", other):
        inputs.check_initial(second, other)
    other.touch()
    with refused("initial-invalid", other, "step 7638"):
        inputs.check_initial(second, other)


def test_of_a_series_each_point_has_its_own_step(
    second: RecipeFile, checkout: Path, tmp_path: Path
) -> None:
    whole = {key: value for key, value in GOOD.items() if key != "expected"}
    points = {number: {"expected": GOOD["expected"]} for number in (1, 2)}
    series = whole | {"launcher": "srun", "series": {
        "over": "nodes", "points": points | {1: points[1] | {"launcher": "none"}}}}
    (checkout / f"recipes/{FIRST}.yaml").write_text(yaml.safe_dump(series))
    with refused("file-invalid", "cpu-smoke ", "(1, 2)"):
        library.load(SECOND)
    path = checkout / f"recipes/{SECOND}.yaml"
    of_points = {"recipe": FIRST, "steps": {1: 200, 2: 100}}
    path.write_text(yaml.safe_dump(GOOD | {"initial": of_points}))
    found = library.load(SECOND)
    for name in ("step-00000200.npz", "step-00000100.npz"):
        (tmp_path / name).touch()
        inputs.check_initial(found, tmp_path / name)
    with refused("initial-missing", f"step 200 of {FIRST}@1", f"step 100 of {FIRST}@2"):
        inputs.check_initial(found, None)
    (checkout / f"recipes/{FIRST}.yaml").write_text(yaml.safe_dump(GOOD))
    with pytest.raises(UsageError, match="not a series"):
        library.load(SECOND)


def test_every_second_stage_begins_where_an_epoch_of_the_first_ends() -> None:
    """Each second-stage recipe starts from a checkpoint that the first stage writes after an epoch.

    Checkpoints are written at the ends of epochs, unless the first stage specifies otherwise.
    """
    seen = 0
    for name in library.names():
        asked = library.definition(name).initial
        first = library.definition(asked.recipe) if asked and asked.recipe else None
        if asked is None or first is None or first.app != "chexnet":
            continue
        for point, one in first.variants():
            step = asked.step if point is None else asked.steps[point]
            ranks = one.resources.nodes * one.resources.tasks_per_node
            samples = one.data["imagenet-2012"].samples["train"]
            batch = ranks * int(str(one.args["batch-size-per-rank"]))
            assert (step or 0) % -(-samples // batch) == 0, f"{name}: {point}"
            seen += 1
    assert seen == 3


def test_a_recipe_without_a_first_stage_takes_no_checkpoint(
    second: RecipeFile, checkpoint: Path
) -> None:
    with refused("arguments-conflict", checkpoint, FIRST):
        inputs.check_initial(library.load(FIRST), checkpoint)
    inputs.check_initial(library.load(FIRST), None)


def test_a_second_stage_is_not_bundled(second: RecipeFile, tmp_path: Path) -> None:
    request = Request(second, Apptainer("/usr/bin/apptainer"), {})
    with refused("bundle-unsupported", second.name):
        pack.pack(request, tmp_path / "b.tar", with_data=False, reporter=Silent())
