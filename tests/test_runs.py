from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from finished import IMAGE, command, start
from trimaran import runs
from trimaran.errors import RunError, UsageError
from trimaran.recipes import RecipeFile


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


def test_a_run_has_its_directory_before_anything_else(recipe: RecipeFile, own_place: Path) -> None:
    out = own_place / "run"
    with runs.claim(recipe, out) as (directory, _):
        with pytest.raises(UsageError, match="is going on"), runs.claim(recipe, out):
            pass
        start(directory, recipe)
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        with pytest.raises(UsageError, match="never overwritten"), runs.claim(recipe, out):
            pass
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert runs.load(out).status == "running"


def test_a_run_that_was_not_begun_leaves_nothing(recipe: RecipeFile, own_place: Path) -> None:
    (own_place / "empty").mkdir()
    for out in (own_place / "new", own_place / "empty", None):
        with pytest.raises(OSError, match="no data"), runs.claim(recipe, out):
            raise OSError("no data")
    assert [path for path in own_place.rglob("*") if not path.is_dir()] == []
    assert not (own_place / "new").exists()
    assert (own_place / "empty").is_dir()
    # What a run that was killed here has left does not block the place.
    (own_place / "empty/.lock").touch()
    with runs.claim(recipe, own_place / "empty"):
        pass


def test_where_there_are_no_locks_the_second_run_changes_nothing(
    recipe: RecipeFile, own_place: Path
) -> None:
    start(own_place / "run", recipe)
    before = (own_place / "run/run.json").read_bytes()
    with pytest.raises(RunError, match="cannot write the run directory"):
        start(own_place / "run", recipe, {"seed": 4})
    assert (own_place / "run/run.json").read_bytes() == before


@pytest.mark.parametrize("place", ["file/run", "nowhere"])
def test_a_run_directory_that_cannot_be_made_is_named(
    recipe: RecipeFile, own_place: Path, place: str
) -> None:
    (own_place / "file").touch()
    (own_place / "nowhere").symlink_to("not/there")
    with (
        pytest.raises(RunError, match=f"cannot make the run directory .*{place}"),
        runs.claim(recipe, own_place / place),
    ):
        pass


def test_run_json_is_written_at_the_start_and_completed_at_the_end(
    recipe: RecipeFile, own_place: Path
) -> None:
    directory = own_place / "run"
    record = start(directory, recipe, {"seed": 3})
    exact = command(recipe, {"seed": 3}, IMAGE)
    begun = json.loads((directory / "run.json").read_text())
    assert begun["status"] == "running"
    assert begun["ended"] is None
    assert begun["recipe"] == {
        "name": "resnet-imagenet/cpu-smoke", "sha256": recipe.sha256, "changed": {"seed": 3},
    }
    assert begun["command"] == {
        "argv": list(exact.argv), "env": {"K": "v"},
        "shell": f"env -i K=v {shlex.join(exact.argv)}",
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
