"""Tests of the comparison of a run's files: each disagreement is named, and prevents a verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from finished import IMAGE, SIF, finish, start
from refusals import refused
from samples import GOOD, write_outcome
from trimaran.errors import RunError
from trimaran.recipes import library
from trimaran.recipes.library import RecipeFile
from trimaran.report import report
from trimaran.run import run_directory
from trimaran.run.record import ImageRecord

Change = Callable[[dict[str, Any]], object]


def change(path: Path, how: Change) -> None:
    content = json.loads(path.read_text())
    how(content)
    path.write_text(json.dumps(content))


def swap(record: dict[str, Any], old: str, new: str) -> None:
    """Replace a word in the launch specification and in the command."""
    for key in ("launch", "command"):
        record[key] = json.loads(json.dumps(record[key]).replace(f'"{old}"', f'"{new}"'))


FOLLOWS = r"run\.json: the launch does not follow .*: "
RECORD: list[tuple[str, Change]] = [
    (r"run\.json: .* exit status is 3", lambda r: r.update(exit_status=3)),
    ("ended None", lambda r: r.update(ended=None)),
    ("ended 2000", lambda r: r.update(ended="2000-01-01T00:00:00Z")),
    ("ended 2001", lambda r: r.update(
        started="2000-01-01T00:00:00Z", ended="2001-01-01T00:00:00Z",
        resumed=[{"started": "2002-01-01T00:00:00Z", **{k: r[k] for k in ("trimaran", "git",
                                                                          "host")}}],
    )),
    (f"{FOLLOWS}arguments is", lambda r: swap(r, "--epochs=1", "--epochs=2")),
    (f"{FOLLOWS}arguments is", lambda r: r["recipe"]["changed"].update(seed=2)),
    (f"{FOLLOWS}arguments is", lambda r: swap(r, "--data=/data", "--data=/else")),
    (r"run\.json: the command does not follow", lambda r: r["command"].update(argv=[])),
    (r"run\.json: the command does not follow", lambda r: r["command"]["env"].update(SEED="1")),
    (f"{FOLLOWS}environment is .*SEED",
     lambda r: r["launch"]["environment"].update(SEED="1")),
    (r"run\.json: the launch has no command: ", lambda r: r["launch"].update(
        launcher=["mpirun", "python"], module=None)),
    (f"{FOLLOWS}image is",
     lambda r: r["launch"]["image"].update(digest="sha256:" + "00" * 32)),
    (r"does not run /a\.sif", lambda r: swap(r, "/a.sif", "/b.sif")),
    ("does not run apptainer", lambda r: swap(r, "/usr/bin/apptainer", "/usr/bin/podman")),
    ("the image has no digest", lambda r: r["image"].update(digest=None)),
    ("image is for aarch64, .* x86_64", lambda r: (
        r["image"].update(architecture="arm64"), r["host"].update(architecture="x86_64"))),
    ("the engine host has no images", lambda r: r["image"].update(engine="host")),
    (f"{FOLLOWS}overlay is '/o', not None",
     lambda r: r["launch"].update(overlay="/o")),
    (f"{FOLLOWS}mounts is",
     lambda r: r.update(modified=[{"kind": "venv", "path": "/v", "sha256": "00" * 32}])),
    (r"metrics\.jsonl: .* [0-9a-f]{64}, .*run\.json has 00",
     lambda r: r["files"].update({"metrics.jsonl": "00"})),
]


@pytest.mark.parametrize(("message", "how"), RECORD)
def test_a_run_json_that_contradicts_itself_is_not_judged(
    recipe: RecipeFile, own_place: Path, message: str, how: Change
) -> None:
    finish(own_place / "run", recipe, image=SIF)
    change(own_place / "run/run.json", how)
    with refused("run-inconsistent", own_place / "run", kind=RunError) as caught:
        report.write(own_place / "run")
    assert re.search(message, caught.value.message)
    assert not (own_place / "run/verdict.json").exists()


METRICS: list[tuple[str, Callable[[list[dict[str, Any]]], object]]] = [
    (r"metrics\.jsonl .* run_stop ", lambda lines: lines.pop()),
    (r"metrics\.jsonl .* run_stop ",
     lambda lines: lines[-1]["metadata"].update(status="aborted")),
    ("0 events run_start", lambda lines: lines.pop(0)),
    ("2 events run_start", lambda lines: lines.insert(0, lines[0])),
    (r"metrics\.jsonl: .*steps", lambda lines: lines[3]["metadata"].update(step=2)),
    ("train_samples is 9, .* 10", lambda lines: lines[1].update(value=9)),
    ("eval_samples is 9, .* 5", lambda lines: lines[2].update(value=9)),
    (r"top1 is 0\.95, .* eval_accuracy .* 0\.99",
     lambda lines: lines[-4].update(value=0.99)),
    (r"result\.json has 3 steps, .* 9", lambda lines: lines[-1]["metadata"].update(step=9)),
    ("seed is 3, .* 4",
     lambda lines: lines.insert(1, {"time_ms": 1, "key": "seed", "value": 3})),
]


@pytest.mark.parametrize(("message", "how"), METRICS)
def test_metrics_of_another_run_are_not_judged(
    recipe: RecipeFile, own_place: Path, message: str, how: Callable[[Any], object]
) -> None:
    finish(own_place / "run", recipe, changed={"seed": 4})
    path = own_place / "run/metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    how(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    # As from an older version, or from who has changed the hash as well.
    change(own_place / "run/run.json", lambda r: r.pop("files"))
    with refused("run-inconsistent", own_place / "run", kind=RunError) as caught:
        report.write(own_place / "run")
    assert re.search(message, caught.value.message)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (None, "run-inconsistent", r"result\.json .* success"),
        ("{}", "run-inconsistent", r"result\.json .* success"),
        ("[]", "run-inconsistent", r"result\.json .* success"),
        ("{", "file-invalid", r"result\.json"),
        ('{"status": "success", "steps": 2, "evaluation": null}', "run-inconsistent",
         "2 steps, .* 3"),
        ('{"status": "success", "steps": 3, "evaluation": null}', "run-inconsistent",
         "top1 is None, "),
    ],
)
def test_a_forged_result_ends_no_run(
    recipe: RecipeFile, own_place: Path, text: str | None, code: str, message: str
) -> None:
    finish(own_place / "run", recipe)
    path = own_place / "run/result.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    change(own_place / "run/run.json", lambda r: r.pop("files"))
    with refused(code, kind=RunError) as caught:
        report.write(own_place / "run")
    assert re.search(message, caught.value.message)


def test_a_run_of_an_older_version_is_judged(recipe: RecipeFile, own_place: Path) -> None:
    finish(own_place / "run", recipe)
    change(own_place / "run/run.json", lambda r: r.pop("files"))
    _, verdict = report.write(own_place / "run")
    assert verdict.outcome == "PASS"
    assert "older version" in verdict.checked[-1]


def test_a_run_of_before_there_were_launch_specifications_is_judged(
    recipe: RecipeFile, own_place: Path
) -> None:
    finish(own_place / "run", recipe)
    change(own_place / "run/run.json", lambda r: r.pop("launch"))
    _, verdict = report.write(own_place / "run")
    assert verdict.outcome == "PASS"
    assert "not compared" in verdict.checked[1]


@pytest.mark.parametrize("of", ["nothing", "sequence", "text"])
def test_a_run_without_data_or_of_clips_or_texts_has_as_many_samples_as_it_likes(
    recipe: RecipeFile, own_place: Path, of: str
) -> None:
    if of != "nothing":
        card = recipe.card.path
        card.write_text(card.read_text().replace("kinds: [class", f"kinds: [{of}, class"))
    more = {"synthetic": True} if of == "nothing" else {}
    recipe.path.write_text(yaml.safe_dump({**GOOD, "args": {**GOOD["args"], **more}}))
    directory = own_place / "run"
    record = start(directory, library.load(recipe.name))
    write_outcome(directory, 0.95)
    path = directory / "metrics.jsonl"
    text, old = path.read_text(), '"train_samples", "value": 10'
    assert old in text
    path.write_text(text.replace(old, old.replace("10", "9")))
    run_directory.finish(directory, record, "completed", 0)
    assert report.write(directory)[1].outcome == "PASS"


def test_the_files_of_a_run_are_hashed_when_it_ends(recipe: RecipeFile, own_place: Path) -> None:
    record = finish(own_place / "run", recipe, image=IMAGE)
    assert set(record.files) == {"metrics.jsonl", "result.json"}
    assert run_directory.go_on(own_place / "run", record).files == {}


def rewritten(directory: Path, how: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the metrics of a run by `how`, and remove the hashes of all files from `run.json`."""
    path = directory / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    how(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    change(directory / "run.json", lambda r: r.pop("files"))


def test_the_result_has_the_last_evaluation_of_several(
    recipe: RecipeFile, own_place: Path
) -> None:
    finish(own_place / "run", recipe, 0.95)
    first = {"time_ms": 1, "key": "eval_accuracy", "value": 0.2, "metadata": {"step": 1}}
    rewritten(own_place / "run", lambda lines: lines.insert(4, first))
    assert report.write(own_place / "run")[1].outcome == "PASS"


def test_a_changed_experiment_may_have_other_samples(recipe: RecipeFile, own_place: Path) -> None:
    finish(own_place / "run", recipe, changed={"epochs": 9})
    rewritten(own_place / "run", lambda lines: lines[1].update(value=9))
    assert report.write(own_place / "run")[1].outcome == "NO REFERENCE"


@pytest.mark.parametrize("given", [None, "2"])
@pytest.mark.parametrize("image", [IMAGE, SIF])
def test_a_command_without_the_recipes_variables_is_not_judged(
    given: str | None, image: ImageRecord, checkout: Path, own_place: Path
) -> None:
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({**GOOD, "env": {"OMP_NUM_THREADS": "1"}}))
    finish(own_place / "run", library.load("resnet-imagenet/cpu-smoke"), image=image)
    assert report.write(own_place / "run")[1].outcome == "PASS"

    def without(record: dict[str, Any]) -> None:
        for variables in (record["launch"]["environment"], record["command"]["env"]):
            [name] = [name for name in variables if name.endswith("OMP_NUM_THREADS")]
            del variables[name]
            if given is not None:
                variables[name] = given

    change(own_place / "run/run.json", without)
    with refused("run-inconsistent", "environment is ", "OMP_NUM_THREADS", kind=RunError):
        report.write(own_place / "run")
