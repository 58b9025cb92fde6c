from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path

import pytest

from finished import IMAGE, launch, start
from refusals import refused
from trimaran.engines.host import Host
from trimaran.errors import RunError, UsageError
from trimaran.recipes.library import RecipeFile
from trimaran.reporting import Silent
from trimaran.run import inputs, launch_spec, pipeline, run_directory
from trimaran.run.record import ImageRecord, Status
from trimaran.run.request import Request


def test_a_new_run_never_takes_an_existing_folder(recipe: RecipeFile, own_place: Path) -> None:
    taken = own_place / "taken"
    taken.mkdir()
    assert run_directory.new_directory(recipe, taken) == taken
    (taken / "file").write_text("precious")
    with refused("run-not-empty", taken):
        run_directory.new_directory(recipe, taken)
    first = run_directory.new_directory(recipe, None)
    assert first.parent == own_place / "runs/resnet-imagenet/cpu-smoke"
    first.mkdir(parents=True)
    assert run_directory.new_directory(recipe, None) != first


def test_a_run_has_its_directory_before_anything_else(recipe: RecipeFile, own_place: Path) -> None:
    out = own_place / "run"
    with run_directory.claim(recipe, out) as (directory, _):
        with (
            pytest.raises(UsageError, match=f"{out} is running"), run_directory.claim(recipe, out)
        ):
            pass
        start(directory, recipe)
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        with refused("run-not-empty", out), run_directory.claim(recipe, out):
            pass
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert run_directory.load(out).status == "running"


def test_a_run_that_was_not_begun_leaves_nothing(recipe: RecipeFile, own_place: Path) -> None:
    (own_place / "empty").mkdir()
    for out in (own_place / "new", own_place / "empty", None):
        with pytest.raises(OSError, match="no data"), run_directory.claim(recipe, out):
            raise OSError("no data")
    assert [path for path in own_place.rglob("*") if not path.is_dir()] == []
    assert not (own_place / "new").exists()
    assert (own_place / "empty").is_dir()
    # The lock of a killed run does not make the folder unusable.
    (own_place / "empty/.lock").touch()
    with run_directory.claim(recipe, own_place / "empty"):
        pass


def test_where_there_are_no_locks_the_second_run_changes_nothing(
    recipe: RecipeFile, own_place: Path
) -> None:
    start(own_place / "run", recipe)
    before = (own_place / "run/run.json").read_bytes()
    with pytest.raises(RunError, match=f"{own_place / 'run'}"):
        start(own_place / "run", recipe, {"seed": 4})
    assert (own_place / "run/run.json").read_bytes() == before


@pytest.mark.parametrize("place", ["file/run", "nowhere"])
def test_a_run_directory_that_cannot_be_made_is_named(
    recipe: RecipeFile, own_place: Path, place: str
) -> None:
    (own_place / "file").touch()
    (own_place / "nowhere").symlink_to("not/there")
    with (
        pytest.raises(RunError, match=f"{own_place / place}"),
        run_directory.claim(recipe, own_place / place),
    ):
        pass


def test_run_json_is_written_at_the_start_and_completed_at_the_end(
    recipe: RecipeFile, own_place: Path
) -> None:
    directory = own_place / "run"
    record = start(directory, recipe, {"seed": 3})
    exact = launch_spec.command(launch(recipe, {"seed": 3}, IMAGE))
    begun = json.loads((directory / "run.json").read_text())
    assert begun["status"] == "running"
    assert begun["ended"] is None
    assert begun["recipe"] == {
        "name": "resnet-imagenet/cpu-smoke", "sha256": recipe.sha256,
        "card_sha256": recipe.card.sha256, "changed": {"seed": 3},
        "nodes": None,
    }
    assert begun["command"] == {
        "argv": list(exact.argv), "env": {"K": "v", "HOME": "/somewhere/run"},
        "shell": f"env -i K=v HOME=/somewhere/run {shlex.join(exact.argv)}",
    }
    assert begun["host"]["cores"] >= 1
    (directory / "environment.json").write_text('{"torch": "2.13.0"}')
    run_directory.finish(directory, record, "completed", 0)
    ended = run_directory.load(directory)
    assert (ended.status, ended.exit_status) == ("completed", 0)
    assert ended.environment == {"torch": "2.13.0"}
    assert ended.seconds is not None
    assert list(directory.glob(".run.json*")) == []


@pytest.mark.parametrize("text", ["", "{", '{"status": "running"}'])
def test_a_damaged_run_json_is_a_clear_error(own_place: Path, text: str) -> None:
    (own_place / "run.json").write_text(text)
    with refused("run-damaged", own_place / "run.json"):
        run_directory.load(own_place)


def test_no_run_directory_is_a_clear_error(own_place: Path) -> None:
    with refused("run-missing", own_place):
        run_directory.load(own_place)


def test_a_full_disk_does_not_leave_a_run_running(
    recipe: RecipeFile, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk does not prevent a run from recording its end.

    At the start, the run reserves the space that `run.json` needs at the end.
    """
    directory, write = own_place / "run", run_directory.write_atomic
    record = start(directory, recipe)
    reserve = directory / run_directory.RESERVE
    assert reserve.stat().st_size > 2 * (directory / "run.json").stat().st_size

    def on_a_full_disk(path: Path, content: str) -> None:
        if (directory / run_directory.RESERVE).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, content)

    monkeypatch.setattr(run_directory, "write_atomic", on_a_full_disk)
    run_directory.finish(directory, record, "failed", 74)
    assert run_directory.load(directory).status == "failed"
    assert not (directory / run_directory.RESERVE).exists()


@pytest.mark.parametrize(("status", "code", "kept"), [
    ("completed", 0, False), ("interrupted", 75, True), ("failed", 1, True),
])
def test_compiled_code_is_kept_until_the_run_is_complete(
    recipe: RecipeFile, own_place: Path, status: Status, code: int, kept: bool
) -> None:
    directory = own_place / "run"
    record = start(directory, recipe)
    (directory / ".caches/triton").mkdir(parents=True)
    run_directory.finish(directory, record, status, code)
    assert (directory / ".caches").exists() is kept


def test_a_run_that_goes_on_keeps_space_for_its_end_again(
    recipe: RecipeFile, own_place: Path
) -> None:
    directory = own_place / "run"
    stopped = run_directory.finish(directory, start(directory, recipe), "interrupted", 75)
    run_directory.go_on(directory, stopped)
    assert (directory / run_directory.RESERVE).exists()


def test_a_full_disk_is_refused_before_anything_is_made(
    recipe: RecipeFile, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = type("Usage", (), {"free": 1_000_000, "total": 2_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: full)
    out = own_place / "run"
    with (
        refused("disk-full", f"{out}: 17 MB ", " 1 MB ", kind=RunError),
        run_directory.claim(recipe, out),
    ):
        pytest.fail("went on")
    assert not out.exists()


@pytest.mark.parametrize("place", ["file/run", "/proc/run"])
def test_a_place_that_cannot_be_made_is_refused_before_data_and_image(
    recipe: RecipeFile, own_place: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_place / "file").touch()
    monkeypatch.setattr(inputs, "prepare", lambda *_, **__: pytest.fail("got data"))
    request = Request(recipe, Host(), {}, out=own_place / place)
    with pytest.raises(RunError, match=str(own_place / place)) as caught:
        pipeline.execute(request, Silent())
    assert caught.value.hint == "choose another --out"


def test_the_image_in_run_json_keeps_its_keys_and_their_order() -> None:
    text = (
        '{"name":"tiny","engine":"apptainer","reference":"/tiny.sif","digest":"sha256:1",'
        '"inputs":"a","architecture":"arm64","signature":null,"emulated":false,"publishable":true}'
    )
    assert ImageRecord.model_validate_json(text).model_dump_json() == text


def test_a_run_on_an_emulated_processor_is_no_evidence() -> None:
    image = ImageRecord(
        name="tiny", engine="apptainer", reference="/tiny.sif", digest="sha256:1", inputs="a")
    assert image.publishable
    assert not image.model_copy(update={"emulated": True}).publishable
