"""Test the evidence of a run: the path of its file, its provenance, and the omitted facts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from finished import IMAGE, SIF, finish
from refusals import refused
from trimaran import cli
from trimaran.errors import UsageError
from trimaran.evidence import check, content, writing
from trimaran.hostfacts import HostFacts
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.report import report
from trimaran.run import run_directory
from trimaran.run.record import ImageRecord

PLACE = "site/results/resnet-imagenet/cpu-smoke"
GPU = "AMD Instinct MI300X (gfx942)"


@pytest.fixture
def directory(recipe: RecipeFile, own_place: Path) -> Path:
    """Create a run in a container that passes with 95 %, and return its directory."""
    return ended(recipe, own_place / "run")


def ended(
    recipe: RecipeFile, directory: Path, image: ImageRecord = SIF, **changed: Argument
) -> Path:
    finish(directory, recipe, 0.95, changed, image)
    return directory


def called(*words: str) -> Result:
    return CliRunner().invoke(cli.app, list(words))


def add(directory: Path, to: Path | None = None, label: str | None = None, **facts: Any) -> Path:
    """Write the evidence of a run as if its host had these facts; return the path of the file."""
    record, verdict = report.write(directory)
    host = HostFacts.model_validate(record.host.model_dump() | facts)
    return writing.add(directory, record.model_copy(update={"host": host}), verdict, to=to,
                       label=label)


def test_the_file_has_the_day_and_the_hardware_in_its_name(
    directory: Path, checkout: Path
) -> None:
    day = run_directory.load(directory).started.date()
    file = add(directory, accelerators=[], processor="Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
               cores=40, hostname="login1")
    assert file == checkout / PLACE / f"{day}-intel-xeon-gold-6148-cpu-40core.json"
    assert check.DATED.fullmatch(file.name)


def test_accelerators_and_changes_are_in_the_name(recipe: RecipeFile, own_place: Path) -> None:
    file = add(ended(recipe, own_place / "run", seed=18), accelerators=[GPU] * 8)
    assert file.name.endswith("-8x-amd-instinct-mi300x-gfx942-seed18.json")


def test_a_second_run_gets_a_number_and_the_same_run_is_refused(
    recipe: RecipeFile, own_place: Path
) -> None:
    first = add(ended(recipe, own_place / "a"), label="epyc")
    second = add(ended(recipe, own_place / "b"), label="epyc")
    assert (first.name[11:], second.name[11:]) == ("epyc.json", "epyc-2.json")
    with refused("file-exists", first):
        add(own_place / "a", label="other")
    with refused("file-exists", second):
        add(own_place / "b", to=second)


def test_a_changed_argument_with_a_path_is_in_the_name_without_the_path(
    recipe: RecipeFile, own_place: Path
) -> None:
    file = add(ended(recipe, own_place / "run", stage="/scratch/alice/fast"))
    assert "stage" in file.name
    assert not {"scratch", "alice"} & set(file.name.replace(".", "-").split("-"))


@pytest.mark.parametrize("label", ["../x", "A", "", "a b", ".a", "a/b", "login17", "8gpu-login17",
                                   "login17-8gpu"])
def test_a_label_that_could_leave_the_folder_or_name_the_host_is_refused(
    directory: Path, checkout: Path, label: str
) -> None:
    with refused("name-invalid", label):
        add(directory, label=label, hostname="login17.example.edu")
    assert not (checkout / "site").exists()


def test_provenance_is_kept_and_private_facts_are_not(
    directory: Path, own_place: Path
) -> None:
    (directory / "environment.json").write_text(json.dumps({
        "packages": {"torch": "2.10.0+rocm7.0"}, "argv": ["/home/bob/x"],
        "variables": {"LD_PRELOAD": "/scratch/bob/a.so:/usr/lib/b.so", "MASTER_ADDR": "login17"},
        "communication": {"library": "Open MPI, package: root@login17, at 10.0.0.7"},
    }))
    record = run_directory.finish(directory, run_directory.load(directory), "completed", 0)
    file = add(directory, own_place / "mine.json", hostname="login17.example.edu")
    text = file.read_text()
    for private in ("bob", "login17", "10.0.0.7", "scratch", "somewhere", "/a.sif"):
        assert private not in text
    found = json.loads(text)
    run = found["run"]
    assert run["recipe"]["sha256"] == record.recipe.sha256
    assert run["image"]["digest"] == SIF.digest
    assert run["git"]["revision"] == record.git.revision
    assert run["command"][:3] == ["train", "--data=/data", "--out=/out"]
    assert run["environment"]["packages"] == {"torch": "2.10.0+rocm7.0"}
    assert run["environment"]["variables"] == {
        "LD_PRELOAD": "[path]:/usr/lib/b.so", "MASTER_ADDR": "[removed]"}
    assert found["sha256"] == content.digest(found)


def test_a_name_that_readers_look_up_is_refused_rather_than_replaced(
    directory: Path, own_place: Path
) -> None:
    record, verdict = report.write(directory)
    image = dataclasses.replace(record.image, name="images.example.org")
    with refused("evidence-private", "run.image.name"):
        writing.write(directory, record.model_copy(update={"image": image}), verdict,
                      own_place / "a.json")
    assert list(own_place.glob("*.json")) == []


def test_a_run_outside_of_a_container_is_refused(recipe: RecipeFile, own_place: Path) -> None:
    with refused("run-unpublishable"):
        add(ended(recipe, own_place / "run", IMAGE))


def test_the_command_and_report_write_the_same(directory: Path, checkout: Path) -> None:
    done = called("evidence", "add", str(directory), "--label", "epyc")
    assert done.exit_code == 0, done.stderr
    file = Path(done.stdout.strip())
    assert file.parent == checkout / PLACE
    assert called("report", str(directory), "--evidence", "same.json").exit_code == 0
    assert Path("same.json").read_text() == file.read_text()
    for words, code in ((["--to", str(file)], "file-exists"),
                        (["--to", "a", "--label", "b"], "arguments-conflict")):
        error = called("evidence", "add", str(directory), *words).exception
        assert isinstance(error, UsageError)
        assert error.code == code
