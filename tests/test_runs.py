from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from samples import GOOD
from trimaran import recipes, report, runs
from trimaran.engines import Command
from trimaran.errors import UsageError
from trimaran.extending import Modification
from trimaran.options import Argument
from trimaran.recipes import RecipeFile
from trimaran.runs import DataRecord, ImageRecord

IMAGE = ImageRecord(
    name="resnet-imagenet-torch-cpu", engine="host", reference="/venv", digest=None,
    inputs="ab" * 32, publishable=False,
)
DATA = DataRecord(name="fashion-mnist", path="/data", sha256="cd" * 32)


@pytest.fixture
def recipe(checkout: Path) -> RecipeFile:
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(GOOD))
    return recipes.load("resnet-imagenet/cpu-smoke")


def start(
    directory: Path, recipe: RecipeFile, changed: dict[str, Argument] | None = None
) -> runs.RunRecord:
    command = Command(("app", "a b"), {"K": "v"})
    return runs.start(directory, recipe, changed or {}, IMAGE, DATA, command)


def write_metrics(directory: Path, accuracy: float) -> None:
    events = [
        *({"key": "train_loss", "value": 2.0 / s, "metadata": {"step": s}} for s in (1, 2, 3)),
        {"key": "throughput", "value": 1500.0, "metadata": {"step": 3, "epoch_num": 1}},
        {"key": "eval_accuracy", "value": accuracy, "metadata": {"step": 3, "epoch_num": 1}},
        {"key": "eval_loss", "value": 0.3, "metadata": {"step": 3, "epoch_num": 1}},
    ]
    lines = [json.dumps({"time_ms": 1, **event}) for event in events]
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def test_a_new_run_never_takes_an_existing_folder(recipe: RecipeFile, own_place: Path) -> None:
    taken = own_place / "taken"
    taken.mkdir()
    assert runs.new_directory(recipe, taken) == taken
    (taken / "file").write_text("precious")
    with pytest.raises(UsageError, match="a run is never overwritten"):
        runs.new_directory(recipe, taken)
    first = runs.new_directory(recipe, None)
    assert first.parent == own_place / "runs/resnet-imagenet/cpu-smoke"
    first.mkdir(parents=True)
    assert runs.new_directory(recipe, None) != first


def test_run_json_is_written_at_the_start_and_completed_at_the_end(
    recipe: RecipeFile, own_place: Path
) -> None:
    directory = own_place / "run"
    record = start(directory, recipe, {"seed": 3})
    begun = json.loads((directory / "run.json").read_text())
    assert begun["status"] == "running"
    assert begun["ended"] is None
    assert begun["recipe"] == {
        "name": "resnet-imagenet/cpu-smoke", "sha256": recipe.sha256, "changed": {"seed": 3},
    }
    assert begun["command"] == {
        "argv": ["app", "a b"], "env": {"K": "v"}, "shell": "env -i K=v app 'a b'",
    }
    assert begun["host"]["cores"] >= 1
    (directory / "environment.json").write_text('{"torch": "2.13.0"}')
    runs.finish(directory, record, "completed", 0)
    ended = runs.load(directory)
    assert (ended.status, ended.exit_status) == ("completed", 0)
    assert ended.environment == {"torch": "2.13.0"}
    assert ended.seconds is not None
    assert list(directory.glob(".run.json*")) == []


@pytest.mark.parametrize("text", ["", "{", '{"status": "running"}'])
def test_a_damaged_run_json_is_a_clear_error(own_place: Path, text: str) -> None:
    (own_place / "run.json").write_text(text)
    with pytest.raises(UsageError, match="is damaged"):
        runs.load(own_place)


def test_no_run_directory_is_a_clear_error(own_place: Path) -> None:
    with pytest.raises(UsageError, match=r"has no run\.json"):
        runs.load(own_place)


@pytest.mark.parametrize(("accuracy", "outcome"), [(0.95, "PASS"), (0.5, "FAIL")])
def test_the_report_has_verdict_curves_and_provenance(
    recipe: RecipeFile, own_place: Path, accuracy: float, outcome: str
) -> None:
    directory = own_place / "run"
    record = start(directory, recipe)
    write_metrics(directory, accuracy)
    runs.finish(directory, record, "completed", 0)
    _, verdict = report.write(directory)
    assert verdict.outcome == outcome
    markdown = (directory / "report.md").read_text()
    page = (directory / "report.html").read_text()
    for text in (markdown, page):
        assert outcome in text
        assert recipe.sha256 in text
        assert "not in a container: not publishable as evidence" in text
        assert f"{accuracy * 100:.2f} %" in text
    assert page.count("<svg") == 1
    assert (directory / "curves.png").read_bytes().startswith(b"\x89PNG")
    evidence = json.loads((directory / "verdict.json").read_text())
    assert evidence["verdict"]["outcome"] == outcome
    assert evidence["run"]["command"]["argv"] == ["app", "a b"]


def test_html_of_a_report_escapes_what_a_recipe_says(recipe: RecipeFile, own_place: Path) -> None:
    recipe.path.write_text(yaml.safe_dump({**GOOD, "summary": "<script>alert(1)</script>"}))
    directory = own_place / "run"
    record = start(directory, recipes.load("resnet-imagenet/cpu-smoke"))
    write_metrics(directory, 0.9)
    runs.finish(directory, record, "completed", 0)
    report.write(directory)
    assert "<script>" not in (directory / "report.html").read_text()


def test_a_run_that_has_not_completed_is_not_judged(recipe: RecipeFile, own_place: Path) -> None:
    start(own_place / "run", recipe)
    with pytest.raises(UsageError, match="is running, not completed"):
        report.write(own_place / "run")


def test_a_recipe_changed_after_the_run_is_noticed(recipe: RecipeFile, own_place: Path) -> None:
    directory = own_place / "run"
    record = start(directory, recipe)
    write_metrics(directory, 0.5)
    runs.finish(directory, record, "completed", 0)
    copy = directory / "recipe.yaml"
    copy.write_text(copy.read_text().replace("value: 90", "value: 40"))
    with pytest.raises(UsageError, match="is not the recipe that was run"):
        report.write(directory)


def test_evidence_names_no_folder_and_no_host(recipe: RecipeFile, own_place: Path) -> None:
    directory, file = own_place / "run", own_place / "results/evidence.json"
    command = Command(("app", str(own_place)), {"HOME": str(own_place)})
    image = IMAGE.model_copy(
        update={"engine": "apptainer", "publishable": True, "reference": f"{own_place}/a.sif",
                "digest": "sha256:" + "ef" * 32}
    )
    data = DATA.model_copy(update={"path": str(own_place)})
    record = runs.start(directory, recipe, {"seed": 3}, image, data, command)
    write_metrics(directory, 0.95)
    runs.finish(directory, record, "completed", 0)
    report.write(directory)
    report.write_evidence(directory, file)
    text = file.read_text()
    assert str(own_place) not in text
    assert record.host.hostname not in text
    kept = json.loads(text)
    assert kept["run"]["image"]["digest"] == image.digest
    assert kept["run"]["recipe"]["changed"] == {"seed": 3}
    assert kept["verdict"]["outcome"] == "PASS"
    with pytest.raises(UsageError, match="never overwritten"):
        report.write_evidence(directory, file)


def test_a_modified_run_says_so_and_is_no_evidence(recipe: RecipeFile, own_place: Path) -> None:
    directory = own_place / "run"
    image = IMAGE.model_copy(update={"engine": "apptainer", "publishable": True})
    record = runs.start(
        directory, recipe, {}, image, DATA, Command(("app",), {}),
        [Modification(kind="venv", path="/my/venv", sha256="ef" * 32)],
    )
    write_metrics(directory, 0.9)
    runs.finish(directory, record, "completed", 0)
    report.write(directory)
    written = json.loads((directory / "run.json").read_text())
    assert written["modified"] == [{"kind": "venv", "path": "/my/venv", "sha256": "ef" * 32}]
    said = "the image was modified (venv /my/venv): not publishable as evidence"
    assert said in (directory / "report.md").read_text()
    with pytest.raises(UsageError, match="was modified"):
        report.write_evidence(directory, own_place / "evidence.json")
    assert not (own_place / "evidence.json").exists()


def test_a_run_outside_a_container_is_no_evidence(recipe: RecipeFile, own_place: Path) -> None:
    directory = own_place / "run"
    record = start(directory, recipe)
    write_metrics(directory, 0.95)
    runs.finish(directory, record, "completed", 0)
    report.write(directory)
    with pytest.raises(UsageError, match="it is no evidence"):
        report.write_evidence(directory, own_place / "evidence.json")
